//! Suites that need no broker: each case is a sentence that is tried on the subject's harness.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::case::{Checked, Failure};
use crate::run::{Cases, Verdict};
use crate::suite::{SHUTDOWN_TIMEOUT, guarded, runtime};

/// One sentence of the contract of `H`'s subject.
pub(crate) struct Sentence<H: ?Sized + 'static> {
    pub(crate) name: &'static str,
    /// The reason why a subject with these promises need not keep the sentence; `None` if it must.
    pub(crate) unmet: fn(&H) -> Option<&'static str>,
    pub(crate) run: Run<H>,
}

/// A sentence's function.
pub(crate) type Run<H> = for<'a> fn(&'a H) -> BoxFuture<'a, Checked>;

impl<H: ?Sized + 'static> Sentence<H> {
    /// A sentence that every subject must keep.
    pub(crate) const fn new(name: &'static str, run: Run<H>) -> Self {
        Self { name, unmet: |_| None, run }
    }

    /// Runs the case only if `unmet` gives no reason to ignore it.
    pub(crate) const fn unless(mut self, unmet: fn(&H) -> Option<&'static str>) -> Self {
        self.unmet = unmet;
        self
    }
}

/// A harness and the sentences that are tried on it.
pub(crate) struct Sentences<H: ?Sized + 'static> {
    pub(crate) harness: Arc<H>,
    pub(crate) name: String,
    pub(crate) sentences: Vec<&'static Sentence<H>>,
    /// How long one sentence may take.
    pub(crate) limit: Duration,
}

impl<H: ?Sized + Send + Sync + 'static> Cases for Sentences<H> {
    fn name(&self) -> &str {
        &self.name
    }

    fn names(&self) -> Vec<&'static str> {
        self.sentences.iter().map(|sentence| sentence.name).collect()
    }

    fn verdict(&self, nth: usize) -> Verdict {
        let sentence = self.sentences[nth];
        if let Some(unmet) = (sentence.unmet)(&self.harness) {
            return Verdict::Ignored(unmet);
        }
        let (harness, run, runtime) = (Arc::clone(&self.harness), sentence.run, runtime());
        let result = runtime.block_on(guarded(self.limit, async move { run(&harness).await }));
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        match result {
            Ok(()) => Verdict::Passed,
            Err(message) => Verdict::Failed(message),
        }
    }
}

/// The result of a subject's method as the result of a step; `doing` is the clause that names it in a
/// failure.
pub(crate) fn done<T>(
    doing: &str,
    result: Result<T, impl Into<Box<dyn std::error::Error + Send + Sync>>>,
) -> Checked<T> {
    result.map_err(|error| {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
        Failure::new(format!("could not {doing}: {}", crate::case::spelt_out(&*error)))
    })
}
