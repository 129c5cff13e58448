//! Where the answers of a stream wait: in an inbox of its own, or beside those of all calls.

use agent_rpc_core::client::{AnswerStream, StreamItem};
use agent_rpc_core::wire::reserved;

use super::watched::{Watched, WatchedTransport};
use super::*;

type Text = AnswerStream<String, String>;

/// Tells numbers up to what it is asked, each followed by so many bytes, and whether it is done.
async fn teller(broker: &MemoryBroker) -> Agent {
    let agent = agent("callee")
        .handle("tell", |context, (to, bytes): (usize, usize)| async move {
            for n in 1..=to {
                context.progress(&format!("{n}{}", " ".repeat(bytes))).await?;
            }
            Ok("done")
        })
        .handle("echo", |_, n: usize| async move { Ok(n) });
    agent.serve_on(connect(broker)).start().await.unwrap()
}

async fn client_over(transport: &WatchedTransport) -> Client {
    let client = Client::builder("caller").over(Arc::clone(transport) as _);
    client.start().await.unwrap()
}

/// The items as text: progress without its padding.
async fn read(stream: &mut Text) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(item) = timeout(SOON, stream.next()).await.unwrap() {
        seen.push(match item {
            Ok(StreamItem::Progress(text) | StreamItem::Final(text)) => text.trim_end().to_owned(),
            Err(error) => error.to_string(),
        });
    }
    seen
}

fn numbers(to: usize) -> Vec<String> {
    (1..=to).map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn a_stream_shares_the_reply_inbox_where_inboxes_are_not_cheap() {
    let broker = MemoryBroker::new();
    let (transport, _agent) = (Watched::dear(&broker), teller(&broker).await);
    let client = client_over(&transport).await;
    let stream = || -> Text { client.request_agent(CALLEE, "tell", &(10, 0)).stream() };
    let (mut one, mut two) = (stream(), stream());
    let (one, two) = tokio::join!(read(&mut one), read(&mut two));
    let expected = [numbers(10), vec!["done".to_owned()]].concat();
    assert_eq!((one, two), (expected.clone(), expected));
    assert_eq!((transport.opened(), transport.open()), (1, 1));
}

#[tokio::test]
async fn a_stream_has_an_inbox_of_its_own_where_that_is_cheap() {
    let broker = MemoryBroker::new();
    let (transport, _agent) = (Watched::over(&broker, "cheap"), teller(&broker).await);
    let client = client_over(&transport).await;
    let mut stream: Text = client.request_agent(CALLEE, "tell", &(10, 0)).stream();
    assert_eq!(transport.open(), 1, "nothing is sent before it is polled");
    stream.next().await.unwrap().unwrap();
    assert_eq!((transport.opened(), transport.open()), (2, 2));
    assert_eq!(read(&mut stream).await.last().unwrap(), "done");
    transport.has_open(1).await;
    let mut dropped: Text = client.request_agent(CALLEE, "tell", &(10, 0)).stream();
    dropped.next().await.unwrap().unwrap();
    drop(dropped);
    transport.has_open(1).await;
}

/// How many items a reader gets that takes the first one, and the next when everything has come.
/// Each number is there or told as missing, in order, and then the final answer.
async fn reads_late(to: usize, bytes: usize) -> usize {
    let broker = MemoryBroker::new();
    let (transport, _agent) = (Watched::dear(&broker), teller(&broker).await);
    let client = client_over(&transport).await;
    let mut stream: Text = client.request_agent(CALLEE, "tell", &(to, bytes)).stream();
    let first = stream.next().await.unwrap().unwrap();
    assert!(matches!(first, StreamItem::Progress(_)));
    for n in 0..100 {
        assert_eq!(client.call::<usize>(CALLEE, "echo", &n).await.unwrap(), n);
    }
    // The clock is paused: it goes on when nobody has anything left to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut seen = read(&mut stream).await;
    assert_eq!(seen.pop().as_deref(), Some("done"));
    let (mut read, mut next) = (1, 2);
    for item in seen {
        let text = "the answer to tell of agent://callee: its answers ";
        match item.strip_prefix(text).and_then(|of| of.strip_suffix(" are missing")) {
            Some(missing) => {
                let (first, last) = missing.split_once(" to ").unwrap();
                assert_eq!(first, next.to_string());
                next = last.parse::<usize>().unwrap() + 1;
            }
            None => {
                assert_eq!(item, next.to_string());
                (read, next) = (read + 1, next + 1);
            }
        }
    }
    assert_eq!(next, to + 1);
    read
}

// The reader's own steps hold up to three more: what it has, and what is being handed on to it.

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_shared_inbox_keeps_16_answers_and_the_final_one() {
    let read = reads_late(100, 0).await;
    assert!((16..=19).contains(&read), "{read}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_slow_reader_of_a_shared_inbox_is_bounded_in_bytes() {
    // Five of them are more than 4 MiB.
    let read = reads_late(12, 900 * 1024).await;
    assert!((4..=7).contains(&read), "{read}");
}

#[tokio::test]
async fn the_deadline_ends_calls_and_streams_even_when_junk_fills_their_inbox() {
    for stream_has_its_own in [true, false] {
        let broker = MemoryBroker::new();
        let transport = match stream_has_its_own {
            true => Watched::over(&broker, "cheap"),
            false => Watched::dear(&broker),
        };
        transport.bring_junk(!stream_has_its_own);
        let client = client_over(&transport).await;
        transport.bring_junk(true);
        let request = || {
            let request = client.request_agent(CALLEE, "hang", &());
            request.timeout(Duration::from_millis(20))
        };
        // Somebody takes it who does not answer.
        let requests = Topic::new(REQUESTS).unwrap();
        let worker = Subscription::Worker { window: 1 };
        let _silent = connect(&broker).subscribe(&requests, worker).await.unwrap();
        let mut stream: Text = request().stream();
        let error = timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, CallError::Timeout(_)), "{error:?}");
        if !stream_has_its_own {
            let error = timeout(SOON, request().into_future()).await.unwrap().unwrap_err();
            assert!(matches!(error, CallError::Timeout(_)), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_takes_no_answer_that_is_somebody_elses() {
    for transport in [Watched::over, |broker: &MemoryBroker, _| Watched::dear(broker)] {
        let broker = MemoryBroker::new();
        let worker = connect(&broker);
        let requests = Topic::new(REQUESTS).unwrap();
        let subscription = Subscription::Worker { window: 1 };
        let mut inbox = worker.subscribe(&requests, subscription).await.unwrap();
        let client = client_over(&transport(&broker, "cheap")).await;
        let mut stream: Text = client.request_agent(CALLEE, "tell", &()).stream();
        let answers = tokio::spawn(async move { read(&mut stream).await });
        let request = next_answer(&mut inbox).await;
        let reply = request.reply_to.clone().unwrap().topic().unwrap();
        let answer = |data: &str| {
            let payload = Payload::from_json(&format!(r#"{{"ok":true,"data":"{data}"}}"#)).unwrap();
            let mut answer = AgentRpcEnvelope::new(
                Kind::Response,
                CALLEE.parse().unwrap(),
                request.from.clone(),
                request.capability.clone(),
                payload,
            );
            answer.correlation_id = request.correlation_id.clone();
            answer.headers.insert(reserved::SEQUENCE, "1").unwrap();
            answer.headers.insert(reserved::FINAL, "true").unwrap();
            answer
        };
        let forged = |change: fn(&mut AgentRpcEnvelope)| {
            let mut forged = answer("forged");
            change(&mut forged);
            forged
        };
        for envelope in [
            forged(|answer| answer.from = "agent://eve".parse().unwrap()),
            forged(|answer| answer.to = "agent://eve".parse().unwrap()),
            forged(|answer| answer.capability = "else".parse().unwrap()),
            forged(|answer| answer.correlation_id = "another".parse().unwrap()),
            forged(|answer| answer.tenant_id = Some("acme".parse().unwrap())),
            forged(|answer| answer.kind = Kind::Event),
            answer("good"),
        ] {
            publish_to(&*worker, &reply, &envelope).await;
        }
        assert_eq!(timeout(SOON, answers).await.unwrap().unwrap(), ["good"]);
    }
}
