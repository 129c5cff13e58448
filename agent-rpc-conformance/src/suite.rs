//! Runs a case: on a runtime of its own, with a broker, within a time limit.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::case::{Case, Checked, spelt_out};
use crate::cases;
use crate::harness::{BoxError, Broker, Harness};
use crate::run::{Cases, Verdict};
use crate::stage::Stage;

/// How long a broker may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a finished case's runtime may take to end.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A harness and the broker that its ordinary cases share.
pub(crate) struct Suite {
    harness: Arc<dyn Harness>,
    shared: OnceLock<Result<Arc<dyn Broker>, String>>,
    /// Locked by a case that restarts a broker: such cases run one after another.
    restarting: Mutex<()>,
    /// The runtime of the shared broker; `None` only while the suite is dropped.
    runtime: Option<Runtime>,
}

impl Suite {
    pub(crate) fn new(harness: Arc<dyn Harness>) -> Self {
        Self {
            harness,
            shared: OnceLock::new(),
            restarting: Mutex::new(()),
            runtime: Some(runtime()),
        }
    }

    fn attempt(&self, runtime: &Runtime, case: &Case) -> Result<(), String> {
        if !case.restarts {
            return self.perform(runtime, case, &self.shared()?);
        }
        let _turn = self.restarting.lock().unwrap_or_else(PoisonError::into_inner);
        // A broker may want to spawn or to post when it is dropped, here at the end.
        let _context = runtime.enter();
        let broker = runtime.block_on(within_start(self.harness.start()))?;
        self.perform(runtime, case, &broker)
    }

    fn perform(
        &self,
        runtime: &Runtime,
        case: &Case,
        broker: &Arc<dyn Broker>,
    ) -> Result<(), String> {
        let stage = Arc::new(Stage::new(Arc::clone(broker), self.harness.guarantees()));
        let limit = stage.limit();
        let run = case.run;
        runtime.block_on(async {
            let on_stage = Arc::clone(&stage);
            let result = guarded(limit, async move { run(&on_stage).await }).await;
            stage.leave().await;
            result.map_err(|message| match broker.log() {
                Some(log) => format!("{message}\nthe broker's log:\n{log}"),
                None => message,
            })
        })
    }

    fn shared(&self) -> Result<Arc<dyn Broker>, String> {
        let start = || self.runtime().block_on(within_start(self.harness.shared()));
        self.shared.get_or_init(start).clone()
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there until the suite is dropped")
    }
}

impl Cases for Suite {
    fn name(&self) -> &str {
        self.harness.name()
    }

    fn names(&self) -> Vec<&'static str> {
        cases::all().map(|case| case.name).collect()
    }

    fn verdict(&self, nth: usize) -> Verdict {
        let case = cases::all().nth(nth).expect("a case of this suite");
        if !(case.needs)(&self.harness.guarantees()) {
            return Verdict::Ignored(case.unmet);
        }
        let runtime = runtime();
        let result = self.attempt(&runtime, case);
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        match result {
            Ok(()) => Verdict::Passed,
            Err(message) => Verdict::Failed(message),
        }
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        {
            // Dropping a broker may spawn, which needs a runtime.
            let _context = runtime.enter();
            drop(self.shared.take());
        }
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }
}

async fn within_start(
    start: impl Future<Output = Result<Box<dyn Broker>, BoxError>>,
) -> Result<Arc<dyn Broker>, String> {
    match tokio::time::timeout(START_TIMEOUT, start).await {
        Ok(Ok(broker)) => Ok(Arc::from(broker)),
        Ok(Err(error)) => Err(format!("the broker did not start: {}", spelt_out(&*error))),
        Err(_) => Err(format!("the broker did not start within {START_TIMEOUT:?}")),
    }
}

/// Runs a case. A panic is a failure, and so is a case that takes too long.
pub(crate) async fn guarded(
    limit: Duration,
    case: impl Future<Output = Checked> + Send + 'static,
) -> Result<(), String> {
    // A task, because a panic then comes back as a value.
    let mut task = tokio::spawn(case);
    match tokio::time::timeout(limit, &mut task).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(failure))) => Err(failure.to_string()),
        Ok(Err(error)) => Err(match error.try_into_panic() {
            Ok(panic) => format!("panicked: {}", words(&*panic)),
            Err(error) => spelt_out(&error),
        }),
        Err(_) => {
            task.abort();
            Err(format!("expected an end within {limit:?}, saw none"))
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not in words")
}
