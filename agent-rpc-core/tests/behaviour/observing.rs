//! Counters, histograms and traces.

use std::collections::BTreeMap;
use std::sync::Mutex;

use agent_rpc_core::environment::{Environment, TraceContext};
use futures_util::StreamExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::watched::{Requests, Watched};
use super::*;

/// What was counted: names with their labels, and how often.
fn counted(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let snapshot = snapshotter.snapshot().into_vec();
    snapshot
        .into_iter()
        .map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count,
                DebugValue::Gauge(value) => value.0 as u64,
                DebugValue::Histogram(values) => values.len() as u64,
            };
            (format!("{}{{{}}}", key.name(), labels.join(",")), value)
        })
        .collect()
}

async fn calls(broker: &MemoryBroker, metrics: bool) {
    let agent = agent("callee").handle("echo", |_, n: u32| async move { Ok(n) });
    let (mut agent, mut client) = (agent.serve_on(connect(broker)), caller(broker));
    if metrics {
        (agent, client) = (agent.metrics(), client.metrics());
    }
    let (agent, client) = (agent.start().await.unwrap(), client.start().await.unwrap());
    for key in ["a", "a", "b"] {
        let call = client.request_agent("agent://callee", "echo", &7).idempotency_key(key);
        call.await.unwrap();
    }
    client.request_agent("agent://callee", "made up", &7).await.unwrap_err();
    client.close().await;
    agent.close().await;
}

#[test]
fn calls_are_counted_under_labels_that_are_known() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(calls(&MemoryBroker::new(), false));
        assert!(counted(&snapshotter).is_empty(), "nobody asked for figures");
        runtime.block_on(calls(&MemoryBroker::new(), true));
    });
    let counted = counted(&snapshotter);
    let requests = |from: &str, capability: &str, outcome: &str| {
        let labels = format!("from={from},to=agent://callee,capability={capability}");
        let name =
            format!("agent_rpc_requests_total{{{labels},transport=memory,outcome={outcome}}}");
        counted.get(&name).copied().unwrap_or_default()
    };
    assert_eq!(requests("agent://caller", "echo", "ok"), 3);
    assert_eq!(requests("agent://caller", "made up", "EAGENTRPC_NO_CAPABILITY"), 1);
    // The agent knows neither the caller nor what it made up.
    assert_eq!(requests("other", "echo", "ok"), 3);
    assert_eq!(requests("other", "other", "EAGENTRPC_NO_CAPABILITY"), 1);
    let latency = "agent_rpc_latency_seconds{capability=echo,transport=memory,side=agent}";
    assert_eq!(counted[latency], 3);
    assert_eq!(counted["agent_rpc_dedupe_hits_total{agent=callee}"], 1);
    assert_eq!(counted["agent_rpc_pending{agent=caller}"], 0);
}

/// What keeps traces, in a test.
#[derive(Debug, Default)]
struct Traces {
    adopted: Mutex<Vec<String>>,
}

impl TraceContext for Traces {
    fn current(&self) -> Option<(String, Option<String>)> {
        Some(("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(), None))
    }

    fn adopt(&self, _: &tracing::Span, traceparent: &str, _: Option<&str>) {
        self.adopted.lock().unwrap().push(traceparent.to_owned());
    }
}

#[tokio::test]
async fn a_trace_goes_with_the_call() {
    let traces = Arc::new(Traces::default());
    let mut environment = Environment::default();
    environment.trace = Some(Arc::clone(&traces) as _);
    let broker = MemoryBroker::new();
    let _agent = agent("callee")
        .handle("echo", |_, n: u32| async move { Ok(n) })
        .environment(environment.clone())
        .serve_on(connect(&broker))
        .start()
        .await
        .unwrap();
    let client = caller(&broker).environment(environment).start().await.unwrap();
    client.call::<u32>("agent://callee", "echo", &7).await.unwrap();
    // What the caller names itself comes first.
    let named = "00-11111111111111111111111111111111-2222222222222222-01";
    let call = client.request_agent("agent://callee", "echo", &7).header("traceparent", named);
    call.await.unwrap();
    let adopted = traces.adopted.lock().unwrap().clone();
    assert_eq!(adopted, ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", named]);
}

/// One of each verb, over a first route that refuses and a second one that answers.
async fn every_verb(environment: Environment) {
    let (one, two) = (MemoryBroker::new(), MemoryBroker::new());
    let (first, second) = (Watched::over(&one, "first"), Watched::over(&two, "second"));
    let agent = agent("callee").handle("echo", |_, n: u32| async move { Ok(n) });
    let agent = agent.environment(environment.clone()).serve_on(connect(&two));
    let agent = agent.start().await.unwrap();
    let client = Client::builder("caller")
        .peer(CALLEE, Route::over(Arc::clone(&first) as _))
        .peer(CALLEE, Route::over(second))
        .environment(environment)
        .metrics();
    let client = client.start().await.unwrap();
    first.let_requests(Requests::Refuse);
    let request = || client.request_agent(CALLEE, "echo", &7);
    request().await.unwrap();
    request().typed::<u32>().await.unwrap();
    request().fire_and_forget().await.unwrap();
    let items: Vec<_> = request().stream::<u32, u32>().collect().await;
    assert!(matches!(items[..], [Ok(_)]), "{items:?}");
    let mut events = client.bus().subscribe();
    request().in_background().await.unwrap();
    events.recv().await.unwrap();
    // The agent has taken the post before it stops.
    agent.drain(SOON).await;
    client.close().await;
}

/// The kinds of the spans `rpc` that begin.
#[derive(Debug, Default)]
struct Spans {
    begun: Mutex<Vec<String>>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "rpc"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut kind = Kinds::default();
        span.record(&mut kind);
        let mut begun = self.begun.lock().unwrap();
        begun.push(kind.0);
        Id::from_u64(begun.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Reads `otel.kind` of a span.
#[derive(Default)]
struct Kinds(String);

impl Visit for Kinds {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.kind" {
            self.0 = value.to_owned();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[test]
fn every_verb_has_its_span_and_its_figures_under_the_route_that_answered() {
    let (recorder, spans) = (DebuggingRecorder::new(), Arc::new(Spans::default()));
    let snapshotter = recorder.snapshotter();
    let traces = Arc::new(Traces::default());
    let mut environment = Environment::default();
    environment.trace = Some(Arc::clone(&traces) as _);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // While there is one subscriber, the thread that comes first to a span decides for all threads
    // whether anybody wants it; and other tests run on other threads.
    let _second = Dispatch::new(NoSubscriber::new());
    tracing::subscriber::with_default(Arc::clone(&spans), || {
        metrics::with_local_recorder(&recorder, || runtime.block_on(every_verb(environment)));
    });
    let counted = counted(&snapshotter);
    let labels = "from=agent://caller,to=agent://callee,capability=echo,transport=second";
    assert_eq!(counted[&format!("agent_rpc_requests_total{{{labels},outcome=ok}}")], 5);
    let latency = "agent_rpc_latency_seconds{capability=echo,transport=second,side=caller}";
    assert_eq!(counted[latency], 5);
    assert!(counted.keys().all(|name| !name.contains("first")), "{counted:?}");
    let begun = spans.begun.lock().unwrap();
    let of_kind = |kind: &str| begun.iter().filter(|of| *of == kind).count();
    assert_eq!((of_kind("client"), of_kind("server")), (5, 5));
    assert_eq!(traces.adopted.lock().unwrap().len(), 5, "each carries its trace on");
}
