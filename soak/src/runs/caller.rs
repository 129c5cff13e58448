//! The run in which the caller's process is killed and started again five times, under load.

use std::collections::BTreeSet;
use std::time::Duration;

use super::probe::Probe;
use super::stage::{READY, Stage};
use crate::args::Loaded;
use crate::child::Process;
use crate::journal::{Event, Verb};
use crate::judge::{self, keys, millis};
use crate::report::{Report, say};

const KILLS: u64 = 5;

/// How many answers a caller gets before it is killed.
const ANSWERS_BEFORE_KILL: usize = 500;

/// The distance between the call numbers of two callers: an answer to another caller's call shows.
const NUMBERS_PER_CALLER: u64 = 1_000_000;

/// How long the last caller may take for all its calls.
const LAST_CALLER_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) async fn run(args: &Loaded, log: bool) -> anyhow::Result<Report> {
    let stage = Stage::set(args.transport, log).await?;
    let worker = stage.worker("worker").await?;
    let mut probe = Probe::connect(args.transport, &stage.family.url).await?;
    let (mut deaf, mut stayed, mut went) = (Vec::new(), Vec::new(), Vec::new());
    let mut inboxes = BTreeSet::new();
    for nth in 0..=KILLS {
        let name = format!("caller-{nth}");
        let is_last = nth == KILLS;
        let calls = if is_last { args.calls } else { NUMBERS_PER_CALLER };
        let caller = start(&stage, &name, nth * NUMBERS_PER_CALLER, calls, args.concurrent)?;
        stage.journal.wait_for(Verb::Answer, &name, ANSWERS_BEFORE_KILL, READY).await?;
        let inbox = inbox_of(&stage.journal.read()?, &name);
        // The probe must reach a living caller: otherwise the bounce of a dead one shows nothing.
        if let Some(inbox) = &inbox
            && !probe.reaches(inbox).await?
        {
            deaf.push(name.clone());
        }
        if is_last {
            caller.finished(LAST_CALLER_TIMEOUT).await?;
            say(format_args!("{name} has made its calls"));
        } else {
            caller.kill()?;
            say(format_args!("{name} was killed"));
        }
        let Some(inbox) = inbox else { continue };
        match probe.gone(&inbox).await? {
            Some(after) => went.push(millis(after)),
            None => stayed.push(inbox.clone()),
        }
        inboxes.insert(inbox);
    }
    say("waiting until nothing is handed out again");
    stage.journal.wait_for_silence(args.transport.quiet()).await?;
    worker.stop().await?;

    let events = stage.journal.read()?;
    let mut report = Report::new("caller", args.transport);
    report.fact("kills", KILLS);
    answers(&mut report, &events, args.calls);
    judge::executions(&mut report, &events, &BTreeSet::new());
    let (begun, confirmed) = (keys(&events, Verb::Begin), keys(&events, Verb::Confirmed));
    report.fact("published_ok", confirmed.len());
    if probe.keeps_what_it_confirms() {
        let lost: Vec<_> = confirmed.difference(&begun).collect();
        report.none("confirmed_but_not_handled", &lost);
    }
    report.fact("reply_inboxes", inboxes.len());
    report.none("inboxes_that_were_not_live", &deaf);
    report.none("inboxes_left_behind", &stayed);
    report.fact("inboxes_gone_after_ms", went);
    Ok(report)
}

fn start(
    stage: &Stage,
    name: &str,
    first: u64,
    calls: u64,
    concurrent: u64,
) -> anyhow::Result<Process> {
    let figures = [("--first", first), ("--calls", calls), ("--concurrent", concurrent)];
    let more: Vec<_> =
        figures.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.to_string()]).collect();
    stage.family.start("caller-child", name, &more)
}

fn inbox_of(events: &[Event], who: &str) -> Option<String> {
    let inbox = events.iter().find(|event| event.verb == Verb::Inbox && event.who == who);
    inbox.map(|event| event.what.clone())
}

/// Checks that each answer went to the call that it answers, and that the last caller got all of its
/// answers.
fn answers(report: &mut Report, events: &[Event], last: u64) {
    let of = |verb| events.iter().filter(move |event| event.verb == verb);
    report.fact("calls", of(Verb::Call).count());
    report.fact("answered", of(Verb::Answer).count());
    let errors: Vec<_> = of(Verb::Error).map(|event| (&event.who, &event.what)).collect();
    report.none("failed", &errors);
    let wrong: Vec<_> = of(Verb::Answer)
        .filter(|event| {
            event.what.split_once('=').is_none_or(|(asked, answered)| asked != answered)
        })
        .collect();
    report.none("wrong_answers", &wrong);
    let survivor = format!("caller-{KILLS}");
    let answered = of(Verb::Answer).filter(|event| event.who == survivor).count();
    report.holds_that(answered as u64 == last, || {
        format!("the last caller got {answered} answers to {last} calls")
    });
}
