//! Sends a call on one route, waits for its answer, and sends it again where the answer may be lost.

use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::mailbox::{Mailbox, Notice};
use super::prepare::Call;
use super::routes::RouteFailure;
use super::send;
use super::take::Take;
use crate::timing::RESEND_INTERVAL;
use crate::transport::{Frame, TransportErrorKind};

/// A call on one route.
pub(super) struct Attempt<'a, T> {
    call: &'a mut Call,
    nth: usize,
    mailbox: &'a mut Mailbox,
    taker: &'a mut T,
    /// When the next route has its turn.
    until: Instant,
    /// Whether there was a transmission before this one: it may have run, or may run now.
    sent_before: bool,
}

impl<'a, T: Take> Attempt<'a, T> {
    pub(super) fn new(
        call: &'a mut Call,
        nth: usize,
        mailbox: &'a mut Mailbox,
        taker: &'a mut T,
    ) -> Self {
        let until = call.route_until(nth);
        Self { call, nth, mailbox, taker, until, sent_before: false }
    }

    /// Publishes the request and waits for what is wanted. After a gap it is published once more,
    /// with the next transmission number: the agent has stored its answer, or still works.
    pub(super) async fn run(mut self) -> Result<T::Taken, RouteFailure> {
        let mut alarm = pin!(sleep_until(self.until));
        let mut frame = tokio::select! {
            biased;
            frame = self.frame() => frame?,
            () = &mut alarm => return Err(RouteFailure::TimedOut),
        };
        loop {
            frame.transmission = self.call.transmission;
            self.call.transmission += 1;
            match self.transmit(&frame, alarm.as_mut()).await? {
                Next::Done(taken) => return Ok(taken),
                Next::Resend => self.sent_before = true,
            }
        }
    }

    /// The frame, with the address at which we are answered on this route.
    async fn frame(&mut self) -> Result<Frame, RouteFailure> {
        let client = &self.call.client;
        let stop = client.stop.clone();
        let abandoned = RouteFailure::Abandoned { sent: false };
        let opened = tokio::select! {
            biased;
            opened = self.mailbox.open(&self.call.routes[self.nth], client) => opened,
            () = stop.cancelled() => return Err(abandoned),
        };
        self.call.envelope.reply_to = opened?;
        tokio::select! {
            biased;
            frame = send::frame(self.call, self.nth) => frame.map_err(RouteFailure::Unsendable),
            () = stop.cancelled() => Err(abandoned),
        }
    }

    /// Publishes the frame once, and waits until it is to be sent again.
    async fn transmit(
        &mut self,
        frame: &Frame,
        mut alarm: Pin<&mut Sleep>,
    ) -> Result<Next<T::Taken>, RouteFailure> {
        let routes = Arc::clone(&self.call.routes);
        let route = &routes[self.nth];
        let mut publish = route.transport.publish(&route.topic, frame);
        let (mut published, mut missed, mut again) = (false, false, OptionFuture::default());
        loop {
            if published && missed {
                return Ok(Next::Resend);
            }
            self.set(alarm.as_mut());
            let notice = tokio::select! {
                biased;
                // The deadline comes first, whatever else there is to do.
                () = alarm.as_mut() => match self.woken(published).await? {
                    Woken::Notice(notice) => notice,
                    Woken::Taker(ControlFlow::Continue(())) => continue,
                    Woken::Taker(ControlFlow::Break(taken)) => return Ok(Next::Done(taken)),
                },
                // Confirm and answer side by side: an answer that overtakes the confirm ends it.
                notice = self.mailbox.next(published) => notice,
                result = &mut publish, if !published => {
                    published = true;
                    match result {
                        Ok(()) => {}
                        Err(error) if !self.sent_before => {
                            return Err(RouteFailure::Publish(error));
                        }
                        // A second transmission must arrive too: the answer to the first may be
                        // lost.
                        Err(_) => again = resend_later(),
                    }
                    continue;
                }
                Some(()) = &mut again => return Ok(Next::Resend),
            };
            match notice {
                Notice::Answer(answer) => {
                    // An agent that answers is not left for the next route.
                    (self.until, self.call.is_answered) = (self.call.end, true);
                    if let ControlFlow::Break(taken) = self.taker.take(answer).await {
                        return Ok(Next::Done(taken));
                    }
                }
                Notice::Bounced if !self.sent_before => {
                    return Err(RouteFailure::Publish(TransportErrorKind::NoReceiver.into()));
                }
                // An earlier transmission may have run, or may run now. After a restart the agent
                // may be back later than we are.
                Notice::Bounced => (published, again) = (true, resend_later()),
                Notice::Gap => missed = true,
                Notice::InboxClosed => return Err(RouteFailure::NoReplyInbox { sent: true }),
                Notice::Abandoned => return Err(RouteFailure::Abandoned { sent: true }),
            }
        }
    }

    /// Sets the alarm to what comes first: the end of this route's time, or what the taker asks for.
    fn set(&self, alarm: Pin<&mut Sleep>) {
        let at = self.taker.wake_at().map_or(self.until, |at| at.min(self.until));
        if alarm.deadline() != at {
            alarm.reset(at);
        }
    }

    /// The alarm has rung. A taker is woken only where nothing waits for it: its reader may have been
    /// slow, and not the agent.
    async fn woken(&mut self, published: bool) -> Result<Woken<T::Taken>, RouteFailure> {
        if Instant::now() >= self.until {
            return Err(RouteFailure::TimedOut);
        }
        match self.mailbox.next(published).now_or_never() {
            Some(notice) => Ok(Woken::Notice(notice)),
            None => Ok(Woken::Taker(self.taker.woken().await)),
        }
    }
}

/// The step after a transmission.
enum Next<T> {
    /// Another one, of the same message.
    Resend,
    /// Nothing: the taker has what it wants.
    Done(T),
}

/// The event that follows the alarm.
enum Woken<T> {
    Notice(Notice),
    Taker(ControlFlow<T>),
}

fn resend_later() -> OptionFuture<Pin<Box<Sleep>>> {
    Some(Box::pin(sleep(RESEND_INTERVAL))).into()
}
