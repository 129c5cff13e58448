//! nats-server.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::installed;
use crate::ports;
use crate::server::{Launch, Server, StartError};
use crate::table::{Broker, Settings, TestBroker};

/// nats-server, with JetStream.
pub static NATS: TestBroker = TestBroker {
    name: "nats",
    variable: "AGENT_RPC_NATS_URL",
    start: |Settings { port, sync_always }| {
        let nats = Nats::start(&NatsOptions { port, sync_always, ..NatsOptions::default() })?;
        Ok(Box::new(nats))
    },
};

/// What a nats-server is started with.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// Its port on 127.0.0.1; by default one that is free.
    pub port: Option<u16>,
    /// Every message is on disk before it is confirmed (`sync_interval: always`); by default the
    /// server syncs every two minutes.
    pub sync_always: bool,
    /// Without JetStream.
    pub without_jetstream: bool,
    /// More lines of its configuration: users, TLS, limits.
    pub config: String,
}

/// A running nats-server.
#[derive(Debug)]
pub struct Nats {
    server: Server,
    port: u16,
}

impl Nats {
    /// Starts one.
    ///
    /// # Errors
    /// If it is not installed, or does not run.
    pub fn start(options: &NatsOptions) -> Result<Self, StartError> {
        let program = installed::program("nats", "nats-server")?;
        let port = ports::pick(options.port)?;
        let config = options.clone();
        let server = Server::new("nats-server", NatsLaunch { program, port }, move |folder| {
            fs::write(folder.join("nats.conf"), config.text(folder, port))
        })?;
        Ok(Self { server, port })
    }

    /// The process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Broker for Nats {
    fn server(&self) -> &Server {
        self.server()
    }

    fn url(&self) -> String {
        self.url()
    }

    /// It keeps no list of its streams that could be behind them.
    fn write_queues(&self) {}
}

impl NatsOptions {
    fn text(&self, folder: &Path, port: u16) -> String {
        let mut text = format!("listen: \"127.0.0.1:{port}\"\n");
        if !self.without_jetstream {
            // By default it syncs every two minutes.
            let sync = if self.sync_always { ", sync_interval: always" } else { "" };
            let store = folder.join("jetstream");
            writeln!(text, "jetstream {{ store_dir: {store:?}{sync} }}")
                .expect("a string takes anything");
        }
        text.push_str(&self.config);
        text
    }
}

struct NatsLaunch {
    program: PathBuf,
    port: u16,
}

impl Launch for NatsLaunch {
    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(folder.join("nats.conf"));
        command
    }

    /// It greets every client, before it asks for credentials or TLS.
    fn answers(&self, _: &Path) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let greeted = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line)?;
            // Without a word of goodbye the server would log a failed handshake.
            stream.write_all(b"CONNECT {\"verbose\":false}\r\n").ok();
            Ok(line.starts_with("INFO "))
        };
        greeted().unwrap_or(false)
    }
}
