//! The permissions that the README names are enough: they are read from there.

use std::sync::Arc;

use agent_rpc_amqp::AmqpTransport;
use agent_rpc_core::transport::{RpcTransport, Subscription};
use serde_json::{Value, json};
use test_brokers::{RabbitMq, RabbitMqOptions};

use crate::{call, connect, delivery, frame, serve, start, topic};

/// Configure, write and read of the row that begins so.
fn row(who: &str) -> [String; 3] {
    let rows = include_str!("../../README.md").lines().filter(|line| line.starts_with("| "));
    let row = rows.filter_map(|line| line.strip_prefix(&format!("| {who} | ")));
    let cells = row.map(|cells| cells.trim_end_matches(" |").split(" | ").collect::<Vec<_>>());
    let [cells] = cells.collect::<Vec<_>>().try_into().expect("one such row");
    let cells = cells.iter().map(|cell| cell.trim_matches('`').replace(r"\|", "|"));
    cells.collect::<Vec<_>>().try_into().expect("three columns")
}

fn definitions() -> Value {
    let rows = [
        ("caller", row("a caller `agents.me` of `agents.peer`")),
        ("agent", row("an agent `agents.me`")),
        ("settled", row("an agent whose queues and exchange exist")),
        ("listener", row("a listener to `agents.peer`")),
        ("guest", [".*", ".*", ".*"].map(ToOwned::to_owned)),
    ];
    let permission = |(user, [configure, write, read]): &(&str, [String; 3])| json!({"user": user, "vhost": "/", "configure": configure, "write": write, "read": read});
    json!({
        "vhosts": [{"name": "/"}],
        "users": rows.iter().map(|(user, _)| json!({"name": user, "password": "word", "tags": []}))
            .collect::<Vec<_>>(),
        "permissions": rows.iter().map(permission).collect::<Vec<_>>(),
    })
}

async fn as_user(user: &str, broker: &RabbitMq) -> Arc<AmqpTransport> {
    Arc::new(connect(&format!("amqp://{user}:word@127.0.0.1:{}", broker.port())).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_readme_are_enough() {
    let definitions = definitions().to_string();
    let broker = start(RabbitMqOptions { definitions, ..RabbitMqOptions::default() }).await;
    let anybody = as_user("guest", &broker).await;

    let peer = serve("peer", &anybody).await;
    assert_eq!(call("agent://peer", &as_user("caller", &broker).await).await, 42);
    peer.close().await;

    // The first makes the queues and the exchange, the second finds them.
    for user in ["agent", "settled"] {
        let transport = as_user(user, &broker).await;
        let agent = serve("me", &transport).await;
        assert_eq!(call("agent://me", &anybody).await, 42, "{user}");
        for place in ["agents.me.requests.dlq", "agents.me.events"] {
            transport.publish(&topic(place), &frame("x")).await.unwrap();
        }
        agent.close().await;
    }

    let listener = as_user("listener", &broker).await;
    let events = topic("agents.peer.events");
    let listening = Subscription::Listener { window: 1 };
    let mut inbox = listener.subscribe(&events, listening).await.unwrap();
    anybody.publish(&events, &frame("news")).await.unwrap();
    assert_eq!(delivery(&mut inbox).await.bytes(), "news");
}
