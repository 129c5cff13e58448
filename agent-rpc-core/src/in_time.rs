//! A limit of time that costs a timer only where something has to be waited for.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, Sleep, sleep_until};

/// The output of `future`, or `None` if it is not ready at `limit`, which is asked for only when the
/// future has to wait. It is polled once a wake-up: polled again right after its own `yield_now`, it would
/// never let others run.
pub(crate) async fn in_time<F: Future>(
    limit: impl FnOnce() -> Instant,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let (mut limit, mut timer) = (Some(limit), pin!(None::<Sleep>));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if let Some(limit) = limit.take() {
            timer.set(Some(sleep_until(limit())));
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_ready_in_time_comes_to_nothing() {
        let limit = || Instant::now() + Duration::from_secs(1);
        assert_eq!(in_time(limit, async { 7 }).await, Some(7));
        assert_eq!(in_time(limit, sleep(Duration::from_millis(999))).await, Some(()));
        assert_eq!(in_time(limit, sleep(Duration::from_millis(1001))).await, None);
        let past = Instant::now();
        assert_eq!(in_time(|| past, std::future::pending::<()>()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_at_once_asks_for_no_limit() {
        let asked = in_time(|| panic!("asked"), async { 7 });
        assert_eq!(asked.await, Some(7));
    }
}
