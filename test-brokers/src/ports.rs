//! The ports that servers are given.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::server::StartError;

/// This port, which nobody may use; without one, a free one.
pub(crate) fn pick(port: Option<u16>) -> Result<u16, StartError> {
    let Some(port) = port else { return free_port() };
    // Another server there would answer in place of the one that could not listen.
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(port),
        Err(error) => Err(StartError::new(format!("port {port} cannot be used: {error}"))),
    }
}

/// A port that nobody uses. It is handed out once in a process: between now and the moment when
/// its server listens, and while that is down, the kernel would give it to the next who asks.
pub(crate) fn free_port() -> Result<u16, StartError> {
    static HANDED_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| StartError::new(format!("no free port: {error}")))?.port();
        if HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_servers_are_given_the_same_port() {
        let ports: BTreeSet<_> = (0..2_000).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 2_000);
    }
}
