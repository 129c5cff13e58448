//! The memory of processes, as the kernel counts it.

use std::collections::BTreeMap;
use std::fs;

/// The bytes of memory that this process holds.
pub(crate) fn own() -> anyhow::Result<u64> {
    of(std::process::id())
}

/// The bytes of memory that all descendants of this process hold together: the broker's.
pub(crate) fn descendants() -> anyhow::Result<u64> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has just ended has no parent any more.
        let Some(parent) = parent(pid) else { continue };
        children.entry(parent).or_default().push(pid);
    }
    let (mut open, mut bytes) = (vec![std::process::id()], 0);
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            bytes += of(child).unwrap_or(0);
            open.push(child);
        }
    }
    Ok(bytes)
}

fn of(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.unwrap_or("0").trim().parse::<u64>()? * 1024)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain anything.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}
