//! A stream takes its routes in turn, as every call does.

use agent_rpc_core::client::{AnswerStream, StreamItem};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::watched::{Requests, Watched, WatchedTransport};
use super::*;

type Count = AnswerStream<u32, String>;

/// Counts to three, and then says its name.
async fn counter(broker: &MemoryBroker, name: &'static str) -> Agent {
    let agent = agent("callee").handle("count", move |context, (): ()| async move {
        for n in 1..=3 {
            context.progress(&n).await?;
        }
        Ok(name)
    });
    agent.serve_on(connect(broker)).start().await.unwrap()
}

/// Two brokers, and a client with a route over each.
struct Routes {
    brokers: [MemoryBroker; 2],
    transports: [WatchedTransport; 2],
    client: Client,
}

impl Routes {
    async fn new() -> Self {
        Self::beginning_with(|broker| Watched::over(broker, "first")).await
    }

    async fn beginning_with(first: fn(&MemoryBroker) -> WatchedTransport) -> Self {
        let brokers = [MemoryBroker::new(), MemoryBroker::new()];
        let transports = [first(&brokers[0]), Watched::dear(&brokers[1])];
        let client = Client::builder("caller")
            .peer(CALLEE, Route::over(Arc::clone(&transports[0]) as _))
            .peer(CALLEE, Route::over(Arc::clone(&transports[1]) as _));
        let client = client.start().await.unwrap();
        Self { brokers, transports, client }
    }

    fn count(&self) -> Count {
        let request = self.client.request_agent(CALLEE, "count", &());
        request.timeout(Duration::from_secs(30)).stream()
    }

    /// How a stream ends that counts to three.
    async fn counted(&self) -> String {
        let items: Vec<_> = self.count().map(Result::unwrap).collect().await;
        let progress: Vec<_> = (1..=3).map(StreamItem::Progress).collect();
        assert_eq!(items[..3], progress);
        match &items[3..] {
            [StreamItem::Final(name)] => name.clone(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_over_the_next_route_if_the_first_is_down() {
    let routes = Routes::beginning_with(Watched::dear).await;
    let _agents =
        [counter(&routes.brokers[0], "one").await, counter(&routes.brokers[1], "two").await];
    assert_eq!(routes.counted().await, "one");
    routes.brokers[0].stop();
    let begin = Instant::now();
    assert_eq!(routes.counted().await, "two");
    assert_eq!(begin.elapsed(), Duration::ZERO, "it is not tried");
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_over_the_next_route_if_the_first_refuses() {
    let routes = Routes::new().await;
    let _agents =
        [counter(&routes.brokers[0], "one").await, counter(&routes.brokers[1], "two").await];
    routes.transports[0].let_requests(Requests::Refuse);
    let begin = Instant::now();
    assert_eq!(routes.counted().await, "two");
    assert_eq!(begin.elapsed(), Duration::ZERO, "nothing is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_stream_leaves_a_silent_route_after_a_third_of_its_time() {
    let routes = Routes::new().await;
    let _agents =
        [counter(&routes.brokers[0], "one").await, counter(&routes.brokers[1], "two").await];
    routes.transports[0].let_requests(Requests::Keep);
    let begin = Instant::now();
    assert_eq!(routes.counted().await, "two");
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_a_stream_has_left_may_still_answer() {
    for silent in [0, 1] {
        let routes = Routes::new().await;
        let late = counter(&routes.brokers[0], "late").await;
        routes.transports[0].let_requests(Requests::Keep);
        routes.transports[1].let_requests(Requests::Keep);
        let mut stream = routes.count();
        // The route that has its turn then is the second one, or none any more.
        let pause = Duration::from_secs(15 + 10 * silent);
        assert!(timeout(pause, stream.next()).await.is_err(), "nobody has got the request");
        routes.transports[0].deliver(&routes.brokers[0]).await;
        let items: Vec<_> = stream.map(Result::unwrap).collect().await;
        assert_eq!(items.len(), 4, "{items:?}");
        assert_eq!(items[3], StreamItem::Final("late".to_owned()));
        late.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_answers_names_the_route_that_it_tried_last() {
    let routes = Routes::new().await;
    for transport in &routes.transports {
        transport.let_requests(Requests::Keep);
    }
    for inactivity in [40, 20] {
        let request = routes.client.request_agent(CALLEE, "count", &());
        let mut stream: Count = request.inactivity(Duration::from_secs(inactivity)).stream();
        let error = stream.next().await.unwrap().unwrap_err();
        let CallError::Timeout(facts) = error else { panic!("{error:?}") };
        let kind = facts.route.as_ref().map(|(kind, _)| *kind);
        assert_eq!((kind, facts.sent), (Some(TransportKind::Memory), true));
        assert!(stream.next().await.is_none());
    }
}
