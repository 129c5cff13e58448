//! Streams of answers.

use agent_rpc_core::client::{AnswerStream, StreamItem};
use futures_util::StreamExt;

use super::*;

/// Counts to what it is asked, then says so.
async fn counter(broker: &MemoryBroker) -> Agent {
    let agent = agent("callee").handle("count", |context, to: u32| async move {
        for n in 1..=to {
            context.progress(&n).await?;
        }
        Ok(format!("counted to {to}"))
    });
    agent.serve_on(connect(broker)).start().await.unwrap()
}

type Count = AnswerStream<u32, String>;

async fn next(stream: &mut Count) -> Option<Result<StreamItem<u32, String>, CallError>> {
    timeout(SOON, stream.next()).await.unwrap()
}

#[tokio::test]
async fn progress_comes_in_order_and_then_the_end() {
    let broker = MemoryBroker::new();
    let _agent = counter(&broker).await;
    let client = caller(&broker).start().await.unwrap();
    let mut stream: Count = client.request_agent(CALLEE, "count", &100).stream();
    for n in 1..=100 {
        assert_eq!(next(&mut stream).await.unwrap().unwrap(), StreamItem::Progress(n));
    }
    let last = next(&mut stream).await.unwrap().unwrap();
    assert_eq!(last, StreamItem::Final("counted to 100".to_owned()));
    assert!(next(&mut stream).await.is_none());
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn a_caller_that_takes_one_answer_gets_the_final_one() {
    let broker = MemoryBroker::new();
    let _agent = counter(&broker).await;
    let client = caller(&broker).start().await.unwrap();
    let answer: String = client.call(CALLEE, "count", &100).await.unwrap();
    assert_eq!(answer, "counted to 100");
}

#[tokio::test]
async fn a_slow_reader_holds_the_agent_back_and_no_other_call() {
    // Room for few answers, so that the agent has to wait for its reader.
    let mut config = MemoryConfig::default();
    config.max_queued = 4;
    let broker = MemoryBroker::with_config(config);
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let agent = agent("callee")
        .handle("count", move |context, to: u32| {
            let count = Arc::clone(&count);
            async move {
                for n in 1..=to {
                    context.progress(&n).await?;
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Ok("done")
            }
        })
        .handle("echo", |_, n: u32| async move { Ok(n) });
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let mut stream: Count = client.request_agent(CALLEE, "count", &1000).stream();
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), StreamItem::Progress(1));
    for n in 0..100 {
        let echoed: u32 = client.call(CALLEE, "echo", &n).await.unwrap();
        assert_eq!(echoed, n);
    }
    assert!(told.load(Ordering::SeqCst) < 100, "the reader has taken one");
    let mut items = 1;
    while let Some(item) = next(&mut stream).await {
        item.unwrap();
        items += 1;
    }
    assert_eq!(items, 1001);
}

#[tokio::test(start_paused = true)]
async fn progress_keeps_a_long_call_alive_and_silence_ends_it() {
    let broker = MemoryBroker::new();
    let agent = agent("callee").handle("work", |context, (steps, pause): (u32, u64)| async move {
        for n in 1..=steps {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            context.progress(&n).await?;
        }
        Ok("done")
    });
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let stream = |steps: u32, pause: u64| -> Count {
        let request = client.request_agent(CALLEE, "work", &(steps, pause));
        request.timeout(Duration::from_secs(300)).inactivity(Duration::from_secs(10)).stream()
    };
    let items: Vec<_> = stream(20, 9).collect().await;
    assert_eq!(items.len(), 21);
    assert!(items.iter().all(Result::is_ok), "180 s, and never 10 s of silence");
    let items: Vec<_> = stream(20, 11).collect().await;
    assert!(matches!(&items[..], [Err(CallError::Timeout(facts))] if facts.sent), "{items:?}");
    // The timeout is the hard cap, however lively the agent is.
    let items: Vec<_> = stream(100, 9).collect().await;
    assert_eq!(items.len(), 34);
    assert!(matches!(items.last(), Some(Err(CallError::Timeout(_)))));
}

#[tokio::test(start_paused = true)]
async fn answers_out_of_order_are_put_in_order_and_missing_ones_are_told() {
    let broker = MemoryBroker::new();
    let worker: Arc<dyn RpcTransport> = connect(&broker);
    let requests = Topic::new("agents.callee.requests").unwrap();
    let mut inbox = worker.subscribe(&requests, Subscription::Worker { window: 1 }).await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let stream: Count = client.request_agent(CALLEE, "count", &7).stream();
    let items = tokio::spawn(stream.collect::<Vec<_>>());
    let Some(Ok(Arrival::Delivery(request))) = inbox.next().await else { panic!("no request") };
    let request = Received::decode(request.bytes().clone(), &Limits::default()).unwrap().trust();
    let reply = request.reply_to.clone().unwrap().topic().unwrap();
    // The third before the second, the third twice, the fourth never.
    for (number, is_final) in [(1, false), (3, false), (2, false), (3, false), (5, true)] {
        let data = if is_final { "\"end\"".to_owned() } else { number.to_string() };
        let payload = Payload::from_json(&format!(r#"{{"ok":true,"data":{data}}}"#)).unwrap();
        let mut answer = AgentRpcEnvelope::new(
            Kind::Response,
            request.to.clone(),
            request.from.clone(),
            request.capability.clone(),
            payload,
        );
        answer.correlation_id = request.correlation_id.clone();
        answer.headers.insert("x-agent-rpc-seq", number.to_string()).unwrap();
        if is_final {
            answer.headers.insert("x-agent-rpc-final", "true").unwrap();
        }
        let frame = Frame {
            bytes: answer.encode(&Limits::default()).unwrap(),
            message_id: answer.message_id,
            transmission: 0,
            correlation_id: answer.correlation_id,
            to: answer.to,
            remaining: None,
        };
        worker.publish(&reply, &frame).await.unwrap();
    }
    let items = items.await.unwrap();
    let seen: Vec<_> = items
        .into_iter()
        .map(|item| match item {
            Ok(StreamItem::Progress(n)) => n.to_string(),
            Ok(StreamItem::Final(end)) => end,
            Err(error) => error.to_string(),
        })
        .collect();
    let missing = "the answer to count of agent://callee: its answers 4 to 4 are missing";
    assert_eq!(seen, ["1", "2", "3", missing, "end"]);
}

#[tokio::test]
async fn an_error_ends_a_stream_and_a_close_abandons_it() {
    let broker = MemoryBroker::new();
    let agent = agent("callee")
        .handle("fail", |context, (): ()| async move {
            context.progress(&1).await?;
            Err::<String, _>(Fault::new("EINVAL", "no"))
        })
        .handle("hang", |context, (): ()| async move {
            context.progress(&1).await?;
            std::future::pending::<()>().await;
            Ok("")
        })
        .handle("early", |context, (): ()| async move {
            context.progress(&1).await?;
            context.answer_early("early")?;
            assert!(!context.progress(&2).await?);
            Ok("late")
        });
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let stream = |capability| -> Count { client.request_agent(CALLEE, capability, &()).stream() };
    let items: Vec<_> = timeout(SOON, stream("fail").collect()).await.unwrap();
    let [Ok(StreamItem::Progress(1)), Err(CallError::Remote(fault))] = &items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(fault.code, "EINVAL");
    let items: Vec<_> = timeout(SOON, stream("early").collect()).await.unwrap();
    assert!(
        matches!(&items[..], [Ok(StreamItem::Progress(1)), Ok(StreamItem::Final(end))] if end == "early"),
        "{items:?}"
    );
    let mut hanging = stream("hang");
    assert!(next(&mut hanging).await.unwrap().is_ok());
    client.close().await;
    let error = next(&mut hanging).await.unwrap().unwrap_err();
    assert_eq!(error.code(), codes::ABANDONED);
    assert!(next(&mut hanging).await.is_none());
    let mut late = stream("hang");
    assert_eq!(next(&mut late).await.unwrap().unwrap_err().code(), codes::ABANDONED);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_slow_reader_is_not_the_agents_silence() {
    let broker = MemoryBroker::new();
    let agent = agent("callee").handle("work", |context, ()| async move {
        context.progress(&1).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        context.progress(&2).await?;
        Ok("done".to_owned())
    });
    let _agent = agent.serve_on(connect(&broker)).start().await.unwrap();
    let client = caller(&broker).start().await.unwrap();
    let request = client.request_agent(CALLEE, "work", &()).timeout(Duration::from_secs(300));
    let mut stream: Count = request.inactivity(Duration::from_secs(10)).stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), StreamItem::Progress(1));
    // Far longer than the agent may be silent; meanwhile it has said everything.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), StreamItem::Progress(2));
    let last = stream.next().await.unwrap().unwrap();
    assert_eq!(last, StreamItem::Final("done".to_owned()));
}
