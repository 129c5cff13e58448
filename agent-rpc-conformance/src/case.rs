//! A case: a sentence of the contract, the guarantees that it needs, and the function that tries it.

use std::fmt;

use agent_rpc_core::transport::Guarantees;
use futures_util::future::BoxFuture;

use crate::stage::Stage;

/// One sentence of the contract.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The sentence.
    pub(crate) name: &'static str,
    /// Whether a transport with these guarantees promises it.
    pub(crate) needs: fn(&Guarantees) -> bool,
    /// Why the case is ignored for a transport that does not promise it.
    pub(crate) unmet: &'static str,
    /// Whether the case restarts the broker, and so needs one that no other case uses.
    pub(crate) restarts: bool,
    /// The function that tries it.
    pub(crate) run: Run,
}

/// A case's function.
pub(crate) type Run = for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>;

impl Case {
    /// A case that every transport must pass, on the broker that all share.
    pub(crate) const fn new(name: &'static str, run: Run) -> Self {
        Self { name, needs: |_| true, unmet: "", restarts: false, run }
    }

    /// Runs the case only if `needs` is true of the guarantees; otherwise it is ignored, and `unmet` is
    /// the clause that explains why.
    pub(crate) const fn needs(
        mut self,
        needs: fn(&Guarantees) -> bool,
        unmet: &'static str,
    ) -> Self {
        self.needs = needs;
        self.unmet = unmet;
        self
    }

    /// Gives the case a broker of its own, which it restarts.
    pub(crate) const fn restarts(mut self) -> Self {
        self.restarts = true;
        self
    }
}

/// The result of a step of a case.
pub(crate) type Checked<T = ()> = Result<T, Failure>;

/// The failure of a case: its text says what was expected and what was seen.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error with all its causes on one line.
pub(crate) fn spelt_out(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Fails the case with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::case::Failure::new(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
