//! Counters, histograms and traces.

use std::collections::BTreeMap;
use std::sync::Mutex;

use agent_rpc_core::environment::{Environment, TraceContext};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

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
