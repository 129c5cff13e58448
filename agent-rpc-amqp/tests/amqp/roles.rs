//! The role of a topic decides whether it is a queue or an exchange; words in its name do not.

use std::sync::Arc;

use agent_rpc_core::transport::{RpcTransport, Subscription, TransportErrorKind};
use agent_rpc_core::wire::TopicRole;

use crate::{call, connect, delivery, frame, serve, shared, topic};

#[tokio::test]
async fn an_answer_never_goes_to_an_exchange() {
    let transport = connect(&shared().await.url()).await;
    for nowhere in ["agents.a.responses.7.events", "agents.a.responses.control"] {
        // An exchange would be made, and take it.
        let error = transport.publish(&topic(nowhere), &frame("an answer")).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::NoReceiver, "{nowhere}");
    }
}

#[tokio::test]
async fn an_agent_may_be_called_like_a_role() {
    let url = shared().await.url();
    let (ours, theirs) = (Arc::new(connect(&url).await), Arc::new(connect(&url).await));
    for name in ["requests", "responses", "events", "control"] {
        let agent = serve(name, &ours).await;
        assert_eq!(call(&format!("agent://{name}"), &theirs).await, 42, "{name}");
        agent.close().await;
    }
}

#[tokio::test]
async fn every_listener_hears_events_and_control_messages() {
    let url = shared().await.url();
    let (one, two) = (connect(&url).await, connect(&url).await);
    let news = topic("news").with_role(TopicRole::Events);
    for place in [topic("agents.heard.events"), topic("agents.events.control"), news] {
        let listening = Subscription::Listener { window: 1 };
        let mut inboxes = [
            one.subscribe(&place, listening).await.unwrap(),
            two.subscribe(&place, listening).await.unwrap(),
        ];
        one.publish(&place, &frame("to all")).await.unwrap();
        for inbox in &mut inboxes {
            assert_eq!(delivery(inbox).await.bytes(), "to all", "{place}");
        }
    }
}

#[tokio::test]
async fn a_listener_elsewhere_is_told_where_to_listen() {
    let transport = connect(&shared().await.url()).await;
    for place in ["agents.a.requests", "agents.a.responses.7.events", "my.events"] {
        let listening = Subscription::Listener { window: 1 };
        let error = transport.subscribe(&topic(place), listening).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{place}");
        let text = error.to_string();
        assert!(text.contains(place) && text.contains("agents.<id>.events"), "{text}");
    }
}
