//! RabbitMQ.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::installed;
use crate::ports::{self, free_port};
use crate::server::{Launch, Server, StartError};
use crate::table::{Broker, Settings, TestBroker};

/// RabbitMQ. A quorum queue syncs before it confirms, always.
pub static RABBITMQ: TestBroker = TestBroker {
    name: "rabbitmq",
    variable: "AGENT_RPC_AMQP_URL",
    start: |Settings { port, sync_always: _ }| {
        let options = RabbitMqOptions { port, ..RabbitMqOptions::default() };
        Ok(Box::new(RabbitMq::start(&options)?))
    },
};

const COOKIE: &str = "agent-rpc-test-brokers";

/// What a RabbitMQ is started with.
#[derive(Debug, Clone, Default)]
pub struct RabbitMqOptions {
    /// Its port on 127.0.0.1, without TLS; by default one that is free.
    pub port: Option<u16>,
    /// A listener with TLS beside the one without.
    pub tls: Option<RabbitMqTls>,
    /// Users, virtual hosts, permissions and policies, as JSON in the format of its definitions; by
    /// default the user `guest` with the password `guest`, who may do everything.
    pub definitions: String,
    /// Plugins to enable, among those that are installed.
    pub plugins: &'static [&'static str],
    /// More lines of its configuration.
    pub config: String,
}

/// The PEM files of a listener with TLS.
#[derive(Debug, Clone)]
pub struct RabbitMqTls {
    /// Who may have signed a client's certificate.
    pub ca: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Whether a client must have one.
    pub from_clients: bool,
}

/// A running RabbitMQ.
#[derive(Debug)]
pub struct RabbitMq {
    server: Server,
    ports: Ports,
    programs: Programs,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    amqps: Option<u16>,
    epmd: u16,
    dist: u16,
}

/// Erlang's folder, that of its emulator, RabbitMQ's, and that of the applications it consists of.
#[derive(Debug, Clone)]
struct Programs {
    erlang: PathBuf,
    emulator: PathBuf,
    home: PathBuf,
    applications: PathBuf,
}

impl RabbitMq {
    /// Starts one.
    ///
    /// # Errors
    /// If it is not installed, or does not run.
    pub fn start(options: &RabbitMqOptions) -> Result<Self, StartError> {
        let programs = Programs {
            erlang: installed::program("rabbitmq", "usr/lib/erlang")?,
            emulator: installed::program("rabbitmq", "erts/bin")?,
            home: installed::program("rabbitmq", "server")?,
            applications: installed::program("rabbitmq", "applications")?,
        };
        let ports = Ports {
            amqp: ports::pick(options.port)?,
            amqps: options.tls.as_ref().map(|_| free_port()).transpose()?,
            epmd: free_port()?,
            dist: free_port()?,
        };
        let launch = RabbitMqLaunch { programs: programs.clone(), ports };
        let server = Server::new("rabbitmq", launch, |folder| options.prepare(folder, ports))?;
        Ok(Self { server, ports, programs })
    }

    /// The process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its port on 127.0.0.1, without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// Its port with TLS, where it was started with that.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.ports.amqps
    }

    /// Its URL, for the user `guest`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.ports.amqp)
    }

    /// Ends it as a crash would, and starts it again with what it had stored, the queues written
    /// first; see [`write_queues`](Self::write_queues).
    ///
    /// # Errors
    /// If it does not come back.
    pub fn crash(&self) -> Result<(), StartError> {
        self.write_queues();
        self.server.restart()
    }

    /// Makes it write to disk which queues there are. Messages are left as they are.
    ///
    /// RabbitMQ 3.10 writes that there is a new queue two or three seconds late, while messages are
    /// on disk before they are confirmed: a crash in between takes a queue with them, or leaves a
    /// quorum queue without a leader, for ever. After this a test may crash it a moment after a
    /// queue was made. Where it does not run there is nothing to write.
    pub fn write_queues(&self) {
        self.call("mnesia", "sync_log", "[]").ok();
        self.call("dets", "sync", "[ra_directory_reverse]").ok();
    }

    /// Calls a function inside the server, and returns what it answers as Erlang prints it:
    /// `call("rabbit_amqqueue", "list_names", "[]")`.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn call(&self, module: &str, function: &str, arguments: &str) -> std::io::Result<String> {
        let output = Command::new(self.programs.emulator.join("erl_call"))
            .args(["-c", COOKIE, "-address"])
            .arg(format!("127.0.0.1:{}", self.ports.dist))
            .args(["-a", &format!("{module} {function} {arguments}")])
            .output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(std::io::Error::other(said))
            }
        }
    }
}

impl Broker for RabbitMq {
    fn server(&self) -> &Server {
        self.server()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn write_queues(&self) {
        self.write_queues();
    }
}

impl RabbitMqOptions {
    fn prepare(&self, folder: &Path, ports: Ports) -> std::io::Result<()> {
        fs::create_dir(folder.join("home"))?;
        // Nobody but its owner may read it, or Erlang refuses.
        let mut cookie = fs::File::options()
            .create_new(true)
            .write(true)
            .mode(0o400)
            .open(folder.join("home/.erlang.cookie"))?;
        cookie.write_all(COOKIE.as_bytes())?;
        fs::write(folder.join("plugins"), format!("[{}].\n", self.plugins.join(",")))?;
        if !self.definitions.is_empty() {
            fs::write(folder.join("definitions.json"), &self.definitions)?;
        }
        fs::write(folder.join("rabbitmq.conf"), self.text(folder, ports))
    }

    fn text(&self, folder: &Path, ports: Ports) -> String {
        let mut text = format!("listeners.tcp.local = 127.0.0.1:{}\n", ports.amqp);
        // It is a guest on a machine that may be small, and nearly full.
        text.push_str(
            "loopback_users = none\n\
             disk_free_limit.absolute = 1MB\n\
             vm_memory_high_watermark.relative = 0.8\n\
             log.file = false\n\
             log.console = true\n\
             log.console.level = warning\n",
        );
        if let (Some(tls), Some(port)) = (&self.tls, ports.amqps) {
            let RabbitMqTls { ca, certificate, key, from_clients } = tls;
            let verify = if *from_clients { "verify_peer" } else { "verify_none" };
            write!(
                text,
                "listeners.ssl.local = 127.0.0.1:{port}\n\
                 ssl_options.cacertfile = {}\n\
                 ssl_options.certfile = {}\n\
                 ssl_options.keyfile = {}\n\
                 ssl_options.verify = {verify}\n\
                 ssl_options.fail_if_no_peer_cert = {from_clients}\n",
                ca.display(),
                certificate.display(),
                key.display(),
            )
            .expect("a string takes anything");
        }
        if !self.definitions.is_empty() {
            let path = folder.join("definitions.json");
            writeln!(text, "load_definitions = {}", path.display())
                .expect("a string takes anything");
        }
        text.push_str(&self.config);
        text
    }
}

struct RabbitMqLaunch {
    programs: Programs,
    ports: Ports,
}

impl RabbitMqLaunch {
    /// The folders of code, the last one first in the path: Erlang asks one after the other for
    /// each of a thousand modules, which is a third of the time to start.
    fn code(&self) -> Vec<PathBuf> {
        let applications = fs::read_dir(&self.programs.applications).into_iter().flatten();
        let mut code: Vec<_> =
            applications.flatten().map(|entry| entry.path().join("ebin")).collect();
        code.sort_by_key(|path| {
            path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("rabbit"))
        });
        code
    }
}

impl Launch for RabbitMqLaunch {
    /// The emulator itself, not RabbitMQ's script: the script waits for it in a shell, starts
    /// another Erlang to prepare, and looks for a thousand modules in sixty folders.
    fn command(&self, folder: &Path) -> Command {
        let Programs { erlang, emulator, home, applications } = &self.programs;
        let Ports { amqp, epmd, dist, .. } = self.ports;
        let mut command = Command::new("sh");
        // The port mapper stays in our process group, and ends with it.
        let script = r#""$BINDIR/epmd" -address 127.0.0.1 & exec "$BINDIR/erlexec" "$@""#;
        command.current_dir(folder).args(["-c", script, "rabbitmq", "-pa"]).args(self.code());
        command.args(["-noshell", "-noinput", "+W", "w", "+P", "1048576", "+t", "5000000"]);
        command.args(["+S", "2:2", "+stbt", "db", "+zdbbl", "128000", "+sbwt", "none"]);
        command.args(["+sbwtdcpu", "none", "+sbwtdio", "none", "-s", "rabbit", "boot"]);
        command.args(["-boot", "start_sasl", "-kernel", "inet_dist_use_interface", "{127,0,0,1}"]);
        command.args(["-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"]);
        command.args(["-kernel", "prevent_overlapping_partitions", "false"]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut all = vec![erlang.join("bin")];
        all.extend(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(all).unwrap_or(path))
            .env("HOME", folder.join("home"))
            .env("ROOTDIR", erlang)
            .env("BINDIR", emulator)
            .env("EMU", "beam")
            .env("PROGNAME", "erl")
            .env("ERL_LIBS", applications)
            .env("ERL_EPMD_PORT", epmd.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP", "/dev/null")
            .env("ERL_MAX_ETS_TABLES", "50000")
            .env("RABBITMQ_HOME", home)
            .env("RABBITMQ_PLUGINS_DIR", applications)
            .env("RABBITMQ_NODENAME", format!("t{amqp}@localhost"))
            .env("RABBITMQ_NODE_PORT", amqp.to_string())
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_DIST_PORT", dist.to_string())
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", folder.join("logs"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_GENERATED_CONFIG_DIR", folder.join("config"));
        command
    }

    /// It greets a client that speaks its protocol once it is whole; a listener alone proves
    /// nothing. The listener with TLS is opened behind the other one.
    fn answers(&self, _: &Path) -> bool {
        let connect = |port: u16| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            TcpStream::connect_timeout(&address, Duration::from_secs(1))
        };
        let greeted = || -> std::io::Result<bool> {
            let mut stream = connect(self.ports.amqp)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"AMQP\x00\x00\x09\x01")?;
            // A frame of the type `method` on the channel 0.
            let mut frame = [0; 3];
            stream.read_exact(&mut frame)?;
            Ok(frame == [1, 0, 0])
        };
        greeted().unwrap_or(false) && self.ports.amqps.is_none_or(|port| connect(port).is_ok())
    }
}
