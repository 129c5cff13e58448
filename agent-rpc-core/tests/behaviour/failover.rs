//! A call that has left a route: what its old routes may still do, and what they may not.

use agent_rpc_core::client::{AnswerStream, StreamItem};
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::played::{Item, Played};
use super::watched::{Requests, Watched, WatchedTransport};
use super::*;

/// When the first route has been left, and the second one has its turn.
const SECOND_TURN: Duration = Duration::from_secs(12);

/// Three brokers, an agent on each that the test plays, and a client with a route over each.
struct Routes {
    brokers: Vec<MemoryBroker>,
    transports: Vec<WatchedTransport>,
    agents: Vec<Played>,
    client: Client,
}

impl Routes {
    /// Tells for each route whether its inboxes are cheap.
    async fn new(cheap: &[bool]) -> Self {
        let mut routes = (Vec::new(), Vec::new(), Vec::new(), Client::builder("caller"));
        for cheap in cheap {
            let broker = MemoryBroker::new();
            let transport = match cheap {
                true => Watched::over(&broker, "cheap"),
                false => Watched::dear(&broker),
            };
            routes.2.push(Played::over(&broker).await);
            routes.3 = routes.3.peer(CALLEE, Route::over(Arc::clone(&transport) as _));
            routes.1.push(transport);
            routes.0.push(broker);
        }
        let (brokers, transports, agents, client) = routes;
        Self { brokers, transports, agents, client: client.start().await.unwrap() }
    }

    fn stream(&self) -> AnswerStream<u32, u32> {
        let request = self.client.request_agent(CALLEE, "x", &());
        request.timeout(Duration::from_secs(30)).stream()
    }

    fn read(&self) -> JoinHandle<Vec<Item>> {
        tokio::spawn(self.stream().collect())
    }

    fn call(&self) -> JoinHandle<u32> {
        let call = self.client.request_agent(CALLEE, "x", &());
        let call = call.timeout(Duration::from_secs(30)).typed::<u32>().into_future();
        tokio::spawn(async { call.await.unwrap().value })
    }

    /// Ends the inboxes of a route, and waits until the client has seen it.
    async fn end_inboxes(&self, nth: usize) {
        self.transports[nth].end_inboxes();
        self.transports[nth].has_open(0).await;
    }
}

/// The items of a stream that ends well.
async fn items(reading: JoinHandle<Vec<Item>>) -> Vec<StreamItem<u32, u32>> {
    reading.await.unwrap().into_iter().map(Result::unwrap).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_inbox_has_ended_goes_on_over_the_next_route() {
    for second_is_cheap in [true, false] {
        let mut routes = Routes::new(&[true, second_is_cheap]).await;
        let reading = routes.read();
        routes.agents[0].request().await;
        routes.transports[0].end_inboxes();
        let request = routes.agents[1].request().await;
        routes.agents[1].finish(&request, 1).await;
        assert_eq!(items(reading).await, [StreamItem::Final(1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_inbox_of_a_route_that_was_left_moves_nothing() {
    for second_is_cheap in [true, false] {
        let mut routes = Routes::new(&[true, second_is_cheap, true]).await;
        let reading = routes.read();
        let request = routes.agents[1].request().await;
        routes.end_inboxes(0).await;
        routes.agents[1].tell(&request, 1).await;
        routes.agents[1].finish(&request, 2).await;
        assert_eq!(items(reading).await, [StreamItem::Progress(1), StreamItem::Final(2)]);
        assert!(routes.agents[2].has_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_was_left_may_answer_after_the_inbox_of_the_last_one_has_ended() {
    let mut routes = Routes::new(&[true, true]).await;
    let reading = routes.read();
    let request = routes.agents[0].request().await;
    routes.agents[1].request().await;
    routes.end_inboxes(1).await;
    routes.agents[0].finish(&request, 1).await;
    assert_eq!(items(reading).await, [StreamItem::Final(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_answered_goes_to_no_other_agent() {
    let mut routes = Routes::new(&[true, true]).await;
    let mut stream = routes.stream();
    let told = async {
        let request = routes.agents[0].request().await;
        routes.agents[0].tell(&request, 1).await;
    };
    let (first, ()) = tokio::join!(stream.next(), told);
    assert_eq!(first.unwrap().unwrap(), StreamItem::Progress(1));
    routes.transports[0].end_inboxes();
    let rest: Vec<_> = stream.collect().await;
    assert!(matches!(&rest[..], [Err(error)] if error.may_have_run()), "{rest:?}");
    assert!(routes.agents[1].has_none(), "the first agent may still be at work");
}

#[tokio::test(start_paused = true)]
async fn a_stream_stays_with_an_agent_that_answers_while_the_next_route_is_tried() {
    let mut routes = Routes::new(&[true, true, true]).await;
    routes.transports[1].let_requests(Requests::Hold);
    let mut stream = routes.stream();
    assert!(timeout(SECOND_TURN, stream.next()).await.is_err(), "nobody has answered");
    assert_eq!(routes.transports[1].published().len(), 1);
    let request = routes.agents[0].request().await;
    routes.agents[0].tell(&request, 1).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), StreamItem::Progress(1));
    routes.transports[1].let_requests(Requests::Refuse);
    assert!(timeout(Duration::from_secs(1), stream.next()).await.is_err());
    routes.agents[0].finish(&request, 2).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), StreamItem::Final(2));
    assert!(routes.agents[2].has_none());
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_seen_on_a_route_after_the_inbox_of_another_has_ended() {
    let mut routes = Routes::new(&[false, true]).await;
    let reading = routes.read();
    routes.agents[1].request().await;
    routes.end_inboxes(0).await;
    routes.brokers[1].restart();
    let again = routes.agents[1].request().await;
    routes.agents[1].finish(&again, 1).await;
    assert_eq!(items(reading).await, [StreamItem::Final(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_bounce_that_comes_after_its_route_was_left_moves_nothing() {
    let mut routes = Routes::new(&[true, true]).await;
    routes.transports[0].let_requests(Requests::Keep);
    routes.transports[1].let_requests(Requests::Hold);
    let call = routes.call();
    sleep(SECOND_TURN).await;
    assert_eq!(routes.transports[1].published().len(), 1);
    routes.transports[0].bounce();
    sleep(Duration::from_secs(1)).await;
    routes.transports[1].let_requests(Requests::Pass);
    let request = routes.agents[1].request().await;
    routes.agents[1].finish(&request, 7).await;
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(routes.transports[1].published().len(), 1, "it was sent once over this route");
}

#[tokio::test(start_paused = true)]
async fn one_message_goes_over_all_routes_with_a_number_for_each_transmission() {
    let mut routes = Routes::new(&[true, true]).await;
    let call = routes.call();
    let request = routes.agents[0].request().await;
    routes.agents[1].request().await;
    routes.brokers[1].restart();
    routes.agents[1].request().await;
    routes.agents[0].finish(&request, 9).await;
    assert_eq!(call.await.unwrap(), 9, "the first route answers late");
    let [first, second] = [0, 1].map(|nth| routes.transports[nth].published());
    let sent: Vec<_> = first.iter().chain(&second).collect();
    assert!(sent.iter().all(|frame| frame.message_id == request.message_id));
    let numbers: Vec<_> = sent.iter().map(|frame| frame.transmission).collect();
    assert_eq!(numbers, [0, 1, 2]);
}
