//! Who may connect: users, tokens, keys, credentials files, certificates.

use std::fs;
use std::path::{Path, PathBuf};

use agent_rpc_core::transport::{Tls, TransportError, TransportErrorKind};
use agent_rpc_nats::{Credentials, NatsConfig, NatsTransport};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as TlsKey};
use test_brokers::{Nats, NatsOptions};

use super::spelt_out;

fn server(config: String) -> Nats {
    Nats::start(&NatsOptions { config, ..NatsOptions::default() }).unwrap()
}

async fn connect(nats: &Nats, credentials: Option<Credentials>) -> Result<(), TransportError> {
    let mut config = NatsConfig::new(nats.url());
    config.credentials = credentials;
    NatsTransport::connect(config).await.map(drop)
}

fn refused(result: Result<(), TransportError>, secret: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused, "{}", spelt_out(&error));
    assert!(error.to_string().contains("credentials"), "{error}");
    assert!(!spelt_out(&error).contains(secret), "{}", spelt_out(&error));
}

#[tokio::test]
async fn a_user_needs_the_password() {
    let nats = server("authorization { user: me, password: right-word }\n".to_owned());
    let user = |password: &str| {
        Some(Credentials::User { user: "me".to_owned(), password: password.to_owned() })
    };
    connect(&nats, user("right-word")).await.unwrap();
    refused(connect(&nats, user("wrong-word")).await, "wrong-word");
    refused(connect(&nats, None).await, "right-word");
    // Also as part of the URL.
    let config = NatsConfig::new(format!("nats://me:right-word@127.0.0.1:{}", nats.port()));
    assert!(!format!("{config:?}").contains("right-word"));
    let transport = NatsTransport::connect(config).await.unwrap();
    assert!(!format!("{transport:?}").contains("right-word"));
}

#[tokio::test]
async fn a_token_must_be_the_one() {
    let nats = server("authorization { token: right-word }\n".to_owned());
    connect(&nats, Some(Credentials::Token("right-word".to_owned()))).await.unwrap();
    refused(connect(&nats, Some(Credentials::Token("wrong-word".to_owned()))).await, "wrong-word");
}

#[tokio::test]
async fn a_key_proves_who_we_are() {
    let (ours, other) = (KeyPair::new_user(), KeyPair::new_user());
    let key = ours.public_key();
    let nats = server(format!("authorization {{ users: [{{ nkey: {key} }}] }}\n"));
    connect(&nats, Some(Credentials::NKey(ours.seed().unwrap()))).await.unwrap();
    let seed = other.seed().unwrap();
    refused(connect(&nats, Some(Credentials::NKey(seed.clone()))).await, &seed);
}

/// A JWT of NATS.
fn jwt(signer: &KeyPair, subject: &str, kind: &str) -> String {
    use base64::Engine;
    let base64 = base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let header = base64.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let issuer = signer.public_key();
    // What is not said is zero.
    let limits = match kind {
        "account" => {
            r#","limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1}"#
        }
        "user" => r#","subs":-1,"data":-1,"payload":-1"#,
        _ => "",
    };
    let claims = base64.encode(format!(
        r#"{{"jti":"{kind}","iat":1700000000,"iss":"{issuer}","name":"{kind}","sub":"{subject}","nats":{{"type":"{kind}","version":2{limits}}}}}"#
    ));
    let signed = format!("{header}.{claims}");
    let signature = base64.encode(signer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

#[tokio::test]
async fn a_credentials_file_proves_who_we_are() {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let user = KeyPair::new_user();
    let of_operator = jwt(&operator, &operator.public_key(), "operator");
    let of_account = jwt(&operator, &account.public_key(), "account");
    let nats = Nats::start(&NatsOptions {
        without_jetstream: true,
        config: format!(
            "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}\n",
            account.public_key()
        ),
        ..NatsOptions::default()
    })
    .unwrap();
    let write = |name: &str, signer: &KeyPair| {
        let (token, seed) = (jwt(signer, &user.public_key(), "user"), user.seed().unwrap());
        let path = nats.server().folder().join(name);
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&path, text).unwrap();
        path
    };
    connect(&nats, Some(Credentials::File(write("right.creds", &account)))).await.unwrap();
    let wrong = write("wrong.creds", &KeyPair::new_account());
    refused(connect(&nats, Some(Credentials::File(wrong))).await, &user.seed().unwrap());
    let nowhere = nats.server().folder().join("nowhere.creds");
    refused(connect(&nats, Some(Credentials::File(nowhere))).await, "seed");
}

/// An authority and what it has signed, as files.
struct Certificates {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, TlsKey>,
}

impl Certificates {
    fn new(folder: &Path, name: &str) -> Self {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, TlsKey::generate().unwrap()).unwrap();
        fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        Self { folder, authority }
    }

    fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A certificate of that name with its key, and nothing else.
    fn sign(&self, name: &str) -> Tls {
        let key = TlsKey::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let at = |kind: &str| self.folder.join(format!("{name}-{kind}.pem"));
        fs::write(at("cert"), certificate.pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        let mut tls = Tls::default();
        (tls.certificate, tls.key) = (Some(at("cert")), Some(at("key")));
        tls
    }
}

async fn with_tls(
    nats: &Nats,
    ca: Option<PathBuf>,
    identity: Option<Tls>,
) -> Result<(), TransportError> {
    let mut config = NatsConfig::new(nats.url());
    config.tls = identity.unwrap_or_default();
    config.tls.ca = ca;
    NatsTransport::connect(config).await.map(drop)
}

fn tls_config(own: &Tls, more: &str) -> String {
    let (certificate, key) = own.identity().unwrap().unwrap();
    format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, timeout: 10 {more} }}\n")
}

#[tokio::test]
async fn a_certificate_must_be_signed_by_whom_we_trust() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) =
        (Certificates::new(folder.path(), "ours"), Certificates::new(folder.path(), "other"));
    let nats = server(tls_config(&ours.sign("localhost"), ""));
    with_tls(&nats, Some(ours.ca()), None).await.unwrap();
    for ca in [Some(other.ca()), None] {
        let error = with_tls(&nats, ca, None).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused, "{}", spelt_out(&error));
        assert!(error.to_string().contains("tls.ca"), "{error}");
    }
    // Whoever asks for TLS gets no connection without it.
    let plain = server(String::new());
    let error = with_tls(&plain, Some(ours.ca()), None).await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused, "{}", spelt_out(&error));
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_takes_ours_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) =
        (Certificates::new(folder.path(), "ours"), Certificates::new(folder.path(), "other"));
    let ca = ours.ca();
    let nats =
        server(tls_config(&ours.sign("localhost"), &format!(", verify: true, ca_file: {ca:?}")));
    with_tls(&nats, Some(ours.ca()), Some(ours.sign("caller"))).await.unwrap();
    for identity in [None, Some(other.sign("caller"))] {
        let error = with_tls(&nats, Some(ours.ca()), identity).await.unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Refused, "{}", spelt_out(&error));
    }
}

#[tokio::test]
async fn the_handshake_comes_before_the_greeting_where_the_config_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Certificates::new(folder.path(), "ours");
    let first = async |more: &str| {
        let nats = server(tls_config(&ours.sign("localhost"), more));
        let mut config = NatsConfig::new(nats.url());
        config.tls.ca = Some(ours.ca());
        config.tls_first = true;
        NatsTransport::connect(config).await.map(drop)
    };
    first(", handshake_first: auto").await.unwrap();
    // This server greets first: the greeting is no handshake.
    let error = first("").await.unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Refused, "{}", spelt_out(&error));
}
