//! Figures for Prometheus and traces for OpenTelemetry: `cargo run --example observability`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent_rpc_core::client::{CallError, Route};
use agent_rpc_core::environment::{Environment, TraceContext};
use agent_rpc_core::{Agent, Client};
use agent_rpc_memory::MemoryBroker;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// Writes the current span into a request's headers, and reads it from them.
#[derive(Debug, Default)]
struct W3c(TraceContextPropagator);

impl TraceContext for W3c {
    fn current(&self) -> Option<(String, Option<String>)> {
        let mut headers = HashMap::new();
        self.0.inject_context(&tracing::Span::current().context(), &mut headers);
        let state = headers.remove("tracestate").filter(|state| !state.is_empty());
        Some((headers.remove("traceparent")?, state))
    }

    fn adopt(&self, span: &tracing::Span, traceparent: &str, tracestate: Option<&str>) {
        let mut headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
        headers.extend(tracestate.map(|state| ("tracestate".to_owned(), state.to_owned())));
        // It fails where nobody keeps traces, which is no reason to fail the request.
        span.set_parent(self.0.extract(&headers)).ok();
    }
}

/// Tells the figures to all who ask; `http-listener`, a feature of the exporter, does it proper.
async fn serve_metrics(listener: TcpListener, figures: PrometheusHandle) -> std::io::Result<()> {
    loop {
        let mut stream = BufReader::new(listener.accept().await?.0);
        while stream.read_line(&mut String::new()).await? > "\r\n".len() {}
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close";
        stream.write_all(format!("{head}\r\n\r\n{}", figures.render()).as_bytes()).await?;
        stream.shutdown().await?;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let figures = PrometheusBuilder::new().install_recorder()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let metrics_address = listener.local_addr()?;
    tokio::spawn(serve_metrics(listener, figures));

    // Kept in memory to be printed below; `opentelemetry-otlp` sends them to a collector.
    let exporter = InMemorySpanExporter::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("agent-rpc"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let mut environment = Environment::default();
    environment.trace = Some(Arc::new(W3c::default()));

    let broker = MemoryBroker::new();
    let agent = Agent::builder("calculator")
        .handle("double", |_context, n: u32| async move { Ok(n * 2) })
        .metrics()
        .environment(environment.clone())
        .serve_on(Arc::new(broker.connect()))
        .start()
        .await?;
    let client = Client::builder("student")
        .peer("agent://calculator", Route::over(Arc::new(broker.connect())))
        .metrics()
        .environment(environment)
        .start()
        .await?;
    for (capability, n) in [("double", 7), ("double", 8), ("divide", 9)] {
        let outcome = client.call::<u32>("agent://calculator", capability, &n).await;
        println!("{capability} {n}: {:?}", outcome.as_ref().map_err(CallError::code));
    }
    client.close().await;
    agent.drain(Duration::from_secs(5)).await;

    let (mut stream, mut page) = (TcpStream::connect(metrics_address).await?, String::new());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    stream.read_to_string(&mut page).await?;
    let is_count = |line: &&str| line.starts_with("agent_rpc_requests_total");
    let mut lines: Vec<_> = page.lines().filter(is_count).collect();
    lines.sort_unstable();
    println!("{}", lines.join("\n"));

    let spans = exporter.get_finished_spans()?;
    for served in spans.iter().filter(|span| span.parent_span_is_remote) {
        let (parent, trace) = (served.parent_span_id, served.span_context.trace_id());
        let mut contexts = spans.iter().map(|span| &span.span_context);
        let same = contexts.any(|it| it.span_id() == parent && it.trace_id() == trace);
        println!("caller span -> agent span, same trace: {same}");
    }
    Ok(())
}
