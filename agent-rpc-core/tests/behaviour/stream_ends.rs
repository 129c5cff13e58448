//! How streams end: with the final answer whatever its number, and by their deadline whatever waits.

use agent_rpc_core::client::{AnswerStream, StreamItem};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};

use super::played::{Item, Played};
use super::watched::Watched;
use super::*;

const FOREVER: Duration = Duration::from_secs(600);

/// What a stream brings whose agent sends answers with these numbers, final or not, and is silent
/// then.
async fn brings(answers: &[(u64, bool)], limit: Duration, inactivity: Duration) -> Vec<Item> {
    let broker = MemoryBroker::new();
    let mut agent = Played::over(&broker).await;
    let client = caller(&broker).start().await.unwrap();
    let request = client.request_agent(CALLEE, "x", &()).timeout(limit).inactivity(inactivity);
    let stream: AnswerStream<u32, u32> = request.stream();
    let reading = tokio::spawn(stream.collect::<Vec<_>>());
    let request = agent.request().await;
    for &(number, is_final) in answers {
        match is_final {
            true => agent.finish(&request, number).await,
            false => agent.tell(&request, number).await,
        }
    }
    let items = reading.await.unwrap();
    assert_eq!(client.pending(), 0);
    items
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_that_waits_for_a_missing_one_is_handed_on_when_time_is_up() {
    let short = Duration::from_millis(500);
    for (limit, inactivity) in [(FOREVER, short), (short, FOREVER)] {
        let items = brings(&[(1, false), (3, true)], limit, inactivity).await;
        let [Ok(StreamItem::Progress(1)), Err(missing), Ok(StreamItem::Final(3))] = &items[..]
        else {
            panic!("{items:?}")
        };
        assert!(matches!(missing, CallError::BadAnswer { .. }), "{missing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_final_answer_of_a_run_that_began_anew_ends_the_stream_at_once() {
    // The second run told less than the first one.
    let begin = Instant::now();
    let items = brings(&[(1, false), (2, false), (3, false), (2, true)], FOREVER, FOREVER).await;
    assert!(matches!(items.last(), Some(Ok(StreamItem::Final(2)))), "{items:?}");
    assert_eq!((items.len(), begin.elapsed()), (4, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_with_the_number_zero_ends_the_stream() {
    let items = brings(&[(0, true)], FOREVER, FOREVER).await;
    assert!(matches!(&items[..], [Ok(StreamItem::Final(0))]), "{items:?}");
}

#[tokio::test(start_paused = true)]
async fn copies_of_answers_are_handed_on_once() {
    let told = [(3, false), (1, false), (2, false), (2, false), (1, false), (4, true)];
    let items = brings(&told, FOREVER, FOREVER).await;
    let items: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    let mut all: Vec<_> = (1..=3).map(StreamItem::Progress).collect();
    all.push(StreamItem::Final(4));
    assert_eq!(items, all);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_stream_whatever_waits_for_its_reader() {
    for is_cheap in [true, false] {
        let broker = MemoryBroker::new();
        let mut agent = Played::over(&broker).await;
        let transport = match is_cheap {
            true => Watched::over(&broker, "cheap"),
            false => Watched::dear(&broker),
        };
        let client = Client::builder("caller").peer(CALLEE, Route::over(transport));
        let client = client.start().await.unwrap();
        let request = client.request_agent(CALLEE, "x", &()).timeout(Duration::from_secs(10));
        let mut stream: AnswerStream<u32, u32> = request.stream();
        let begin = Instant::now();
        let read = async {
            let mut last = None;
            while let Some(item) = stream.next().await {
                last = Some(item);
                sleep(Duration::from_secs(1)).await;
            }
            last
        };
        let told = async {
            let request = agent.request().await;
            for number in 1..=300 {
                agent.tell(&request, number).await;
            }
        };
        let (last, ()) = tokio::join!(read, told);
        assert!(matches!(last, Some(Err(CallError::Timeout(_)))), "{last:?}");
        assert!(begin.elapsed() <= Duration::from_secs(13), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn progress_that_is_too_large_is_told_as_missing_and_the_stream_goes_on() {
    let broker = MemoryBroker::new();
    let agent = agent("callee").handle("x", |context, (): ()| async move {
        context.progress(&"small").await?;
        context.progress(&"x".repeat(3 << 20)).await?;
        Ok("done")
    });
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let stream: AnswerStream<String, String> = client.request_agent(CALLEE, "x", &()).stream();
    let items = timeout(SOON, stream.collect::<Vec<_>>()).await.unwrap();
    let [Ok(StreamItem::Progress(small)), Err(missing), Ok(StreamItem::Final(done))] = &items[..]
    else {
        panic!("{items:?}")
    };
    assert!(matches!(missing, CallError::BadAnswer { .. }), "{missing:?}");
    assert_eq!((small.as_str(), done.as_str()), ("small", "done"));
}
