//! A server that is away, says nothing, or permits little.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_an_error_at_once_or_waited_for() {
    let nats = server();
    let port = nats.port();
    nats.server().stop();
    let mut config = NatsConfig::new(format!("nats://me:secret@127.0.0.1:{port}"));
    let error = NatsTransport::connect(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert!(!spelt_out(&error).contains("secret"));
    config.url = nats.url();
    config.wait_at_start = Duration::from_secs(30);
    let starting = tokio::task::spawn_blocking(move || {
        nats.server().start().unwrap();
        nats
    });
    let (connected, _nats) = tokio::join!(NatsTransport::connect(config), starting);
    connected.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_durations_are_waited_for_as_long_as_a_clock_can() {
    let nats = server();
    let mut config = in_stream(&nats, |settings| {
        settings.ack_wait = Duration::MAX;
        settings.max_age = Some(Duration::MAX);
        settings.duplicate_window = Duration::MAX;
    });
    config.connect_timeout = Duration::MAX;
    config.wait_at_start = Duration::MAX;
    config.publish_timeout = Duration::MAX;
    let transport = connect(config).await;
    let mut inbox = worker(&transport, "agents.a.requests").await;
    transport.publish(&topic("agents.a.requests"), &frame("x")).await.unwrap();
    next(&mut inbox).await.accept().await.unwrap();
    let listening = Subscription::Listener { window: 1 };
    let mut inbox = transport.subscribe(&topic("agents.a.events"), listening).await.unwrap();
    transport.publish(&topic("agents.a.events"), &frame("news")).await.unwrap();
    assert_eq!(next(&mut inbox).await.bytes(), "news");
    transport.close(Duration::MAX).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_is_enough_to_connect() {
    let nats = server();
    let transport = NatsTransport::connect(nats.url().as_str()).await.unwrap();
    assert!(transport.guarantees().durable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_makes_publish_say_that_nothing_was_confirmed() {
    let nats = server();
    let mut config = in_stream(&nats, |_| ());
    config.publish_timeout = Duration::from_millis(300);
    let transport = connect(config).await;
    let at = topic("agents.a.requests");
    let _inbox = worker(&transport, at.as_str()).await;
    transport.publish(&at, &frame("x")).await.unwrap();
    nats.server().pause();
    let error = transport.publish(&at, &frame("x")).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unconfirmed);
    assert!(error.may_have_arrived());
    nats.server().resume();
    transport.publish(&at, &frame("x")).await.unwrap();
}

/// What the README says an agent that also calls needs, and nothing else.
const PERMISSIONS: &str = r#"
publish: { allow: [
    "agents.*.requests", "agents.*.responses.>", "agents.a.events", "agents.a.requests.dlq",
    "_INBOX.>", "$JS.API.STREAM.NAMES", "$JS.ACK.agents~a~requests.>",
    "$JS.API.CONSUMER.MSG.NEXT.agents~a~requests.>", "$JS.API.CONSUMER.INFO.agents~a~requests.>",
    "$JS.API.STREAM.CREATE.agents~a~requests", "$JS.API.CONSUMER.CREATE.agents~a~requests.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.agents~a~requests.>"
] }
subscribe: { allow: ["agents.a.responses.>", "_INBOX.>", "agents.b.events", "agents.a.requests"] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_readme_are_enough() {
    let config = format!(
        "authorization {{ users: [{{ user: a, password: word, permissions: {{ {PERMISSIONS} }} }}] }}\n"
    );
    let nats = Nats::start(&NatsOptions { config, ..NatsOptions::default() }).unwrap();
    let url = format!("nats://a:word@127.0.0.1:{}", nats.port());
    for requests in [Requests::default(), Requests::Core] {
        let mut config = NatsConfig::new(url.clone());
        config.requests = requests;
        let transport = connect(config).await;
        let agent = agent("a", Arc::clone(&transport)).await;
        let listening = Subscription::Listener { window: 1 };
        drop(transport.subscribe(&topic("agents.b.events"), listening).await.unwrap());
        transport.publish(&topic("agents.a.events"), &frame("news")).await.unwrap();
        let client = Client::builder("a").peer("agent://a", Route::over(Arc::clone(&transport)));
        let client = client.start().await.unwrap();
        let doubled: u32 = client.call("agent://a", "double", &21).await.unwrap();
        assert_eq!(doubled, 42);
        transport.publish(&topic("agents.a.requests.dlq"), &frame("letter")).await.unwrap();
        agent.close().await;
        assert!(!nats.server().log().contains("Violation"), "{}", nats.server().log());
    }
}
