//! TLS, with certificates that are made here.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use agent_rpc_amqp::{AmqpConfig, AmqpTransport};
use agent_rpc_core::transport::{RpcTransport, Subscription, Tls, TransportErrorKind};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;
use test_brokers::{RabbitMq, RabbitMqOptions, RabbitMqTls};

use crate::{delivery, frame, spelt_out, start, topic};

/// An authority, and what it has signed, in files.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The files of a certificate and of its key.
    fn signs(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |what: &str| self.folder.path().join(format!("{name}.{what}.pem"));
        fs::write(path("certificate"), certificate.pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("certificate"), path("key"))
    }

    async fn broker(&self, from_clients: bool, options: RabbitMqOptions) -> Arc<RabbitMq> {
        let (certificate, key) = self.signs("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        let tls = RabbitMqTls { ca: self.ca(), certificate, key, from_clients };
        start(RabbitMqOptions { tls: Some(tls), ..options }).await
    }
}

fn config(rabbitmq: &RabbitMq, user: &str, tls: Tls) -> AmqpConfig {
    let port = rabbitmq.tls_port().unwrap();
    let mut config = AmqpConfig::new(format!("amqps://{user}@localhost:{port}"));
    config.tls = tls;
    config
}

async fn works(transport: &AmqpTransport) {
    let place = topic("agents.secure.requests");
    let mut inbox = transport.subscribe(&place, Subscription::Worker { window: 1 }).await.unwrap();
    transport.publish(&place, &frame("secret")).await.unwrap();
    delivery(&mut inbox).await.accept().await.unwrap();
}

async fn is_refused(config: AmqpConfig, said: &str) {
    let error = AmqpTransport::connect(config).await.unwrap_err();
    let text = spelt_out(&error);
    assert_eq!(error.kind(), TransportErrorKind::Refused, "{text}");
    assert!(text.contains(said), "{text}");
}

#[tokio::test]
async fn a_broker_is_trusted_by_its_certificate() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let rabbitmq = ours.broker(false, RabbitMqOptions::default()).await;
    let trusting = |ca| {
        let mut tls = Tls::default();
        tls.ca = Some(ca);
        tls
    };
    let transport = AmqpTransport::connect(config(&rabbitmq, "guest:guest", trusting(ours.ca())));
    works(&transport.await.unwrap()).await;

    let guest = "guest:guest";
    is_refused(config(&rabbitmq, guest, trusting(theirs.ca())), "UnknownIssuer").await;
    is_refused(config(&rabbitmq, guest, Tls::default()), "UnknownIssuer").await;
    let mut misnamed = config(&rabbitmq, guest, trusting(ours.ca()));
    misnamed.server_name = Some("rabbit.example".to_owned());
    is_refused(misnamed, "NotValidForName").await;
    is_refused(config(&rabbitmq, guest, trusting("/no/such/file.pem".into())), "/no/such/file")
        .await;
    is_refused(config(&rabbitmq, "guest:wrong", trusting(ours.ca())), "ACCESS_REFUSED").await;
}

#[tokio::test]
async fn a_client_is_trusted_by_its_certificate() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    // The name in the certificate is the user; there is no password.
    let options = RabbitMqOptions {
        plugins: &["rabbitmq_auth_mechanism_ssl"],
        config: "auth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = common_name\n".to_owned(),
        definitions: r#"{
            "vhosts": [{"name": "/"}],
            "users": [{"name": "an-agent", "password": "unused", "tags": []}],
            "permissions": [
                {"user": "an-agent", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
            ]
        }"#
        .to_owned(),
        ..RabbitMqOptions::default()
    };
    let rabbitmq = ours.broker(true, options).await;
    let with = |certificate: Option<(PathBuf, PathBuf)>| {
        let mut tls = Tls::default();
        tls.ca = Some(ours.ca());
        (tls.certificate, tls.key) = certificate.unzip();
        let mut config = config(&rabbitmq, "", tls);
        config.url = format!("{}/%2f?auth_mechanism=external", config.url.replace("//@", "//"));
        config
    };
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let transport = AmqpTransport::connect(with(Some(ours.signs("an-agent", client.clone()))));
    works(&transport.await.unwrap()).await;

    is_refused(with(None), "CertificateRequired").await;
    is_refused(with(Some(theirs.signs("an-agent", client.clone()))), "UnknownCA").await;
    is_refused(with(Some(ours.signs("nobody", client))), "ACCESS_REFUSED").await;
}
