//! Waits until the process is asked to stop: `async fn shutdown_signal()`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use agent_rpc_core::Agent;
//! use agent_rpc_memory::MemoryBroker;
//! use agent_rpc_shutdown::shutdown_signal;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder("calculator")
//!     .handle("double", |_, n: u32| async move { Ok(n * 2) })
//!     .serve_on(Arc::new(MemoryBroker::new().connect()))
//!     .start()
//!     .await?;
//! agent.serve_until(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```

/// Returns when the process is asked to stop: by Ctrl-C, and on Unix by SIGTERM, which is what an
/// orchestrator sends.
///
/// It listens from its first poll on. From then on these signals no longer end the process by
/// themselves, not even when this has returned or is dropped: the program has to end. A second
/// Ctrl-C does not end it sooner, so bound what is done after the first one, as
/// `AgentBuilder::grace` does. A signal that cannot be listened to ends the process, as if nobody
/// had asked; this never returns for it.
///
/// # Panics
/// Outside of a tokio runtime, or in one without I/O (`enable_io` or `enable_all` turns it on).
pub async fn shutdown_signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
