//! The cases: each is a sentence of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_rpc_core::dead_letters::{DeadLetter, DeadLetterError, DeadLetterId};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::stage::{Opened, dead_letter, id_of};
use super::{Case, Harness};
use crate::case::{Checked, Failure, ensure};
use crate::sentences::done;

pub(crate) const CASES: &[Case] = &[
    LISTED,
    LISTING_TAKES_NOTHING,
    NO_MORE_THAN_ASKED,
    TAKEN_ONCE,
    TWO_ALIKE,
    NEVER_KEPT,
    KEPT_AT_ONCE,
    TAKEN_AT_ONCE,
    THERE_FOR_OTHERS,
    Case::new("the oldest dead letters are listed first", |harness| {
        Box::pin(oldest_first(harness))
    })
    .unless(|harness| (!harness.promises().ordered).then_some("dead letters have no order")),
    Case::new("a full store says so and keeps what it has", |harness| {
        Box::pin(a_full_store_says_so(harness))
    })
    .unless(|harness| (!harness.promises().bounded).then_some("it has no largest size")),
    Case::new("a dead letter that is too large is refused and the next one kept", |harness| {
        Box::pin(too_large_is_refused(harness))
    })
    .unless(|harness| {
        harness.promises().too_large.is_none().then_some("dead letters have no largest size")
    }),
];

// These have names because the suite for transports tries them, too.

pub(crate) const LISTED: Case =
    Case::new("a dead letter that was kept is listed as it was", |harness| {
        Box::pin(listed_as_it_was(harness))
    });
pub(crate) const LISTING_TAKES_NOTHING: Case =
    Case::new("listing dead letters takes nothing out", |harness| {
        Box::pin(listing_takes_nothing(harness))
    });
pub(crate) const NO_MORE_THAN_ASKED: Case =
    Case::new("no more dead letters are listed than were asked for", |harness| {
        Box::pin(no_more_than_asked(harness))
    });
pub(crate) const TAKEN_ONCE: Case =
    Case::new("a dead letter is taken out once", |harness| Box::pin(taken_once(harness)));
pub(crate) const TWO_ALIKE: Case =
    Case::new("two dead letters that say the same are two", |harness| Box::pin(two_alike(harness)));
pub(crate) const NEVER_KEPT: Case =
    Case::new("a dead letter that was never kept cannot be taken", |harness| {
        Box::pin(never_kept(harness))
    });
pub(crate) const KEPT_AT_ONCE: Case =
    Case::new("of many dead letters that are kept at once none is lost", |harness| {
        Box::pin(kept_at_once(harness))
    });
pub(crate) const TAKEN_AT_ONCE: Case =
    Case::new("of two who take a dead letter at once one gets it at most", |harness| {
        Box::pin(taken_at_once(harness))
    });

pub(crate) const THERE_FOR_OTHERS: Case =
    Case::new("a dead letter is there for whoever opens the store again", |harness| {
        Box::pin(there_for_whoever_opens_it_again(harness))
    })
    .unless(|harness| (!harness.promises().persistent).then_some("it keeps nothing for others"));

async fn listed_as_it_was(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let mut one = DeadLetter::new("attempts", "☃ \"\n", "t", u64::MAX, every_byte.into());
    one.attempts = 7;
    let mut other = DeadLetter::new("auth-rejected", "", "t", 0, bytes::Bytes::new());
    other.attempts = 0;
    for dead in [&one, &other] {
        opened.keep(dead).await?;
    }
    opened.listed(&[one, other]).await?;
    Ok(())
}

async fn listing_takes_nothing(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let kept = [1, 2].map(dead_letter);
    for dead in &kept {
        opened.keep(dead).await?;
    }
    let ids: BTreeSet<_> = opened.listed(&kept).await?.into_iter().collect();
    for _ in 0..2 {
        let again: BTreeSet<_> = opened.listed(&kept).await?.into_iter().collect();
        ensure!(again == ids, "expected the same ids, saw {ids:?} and then {again:?}");
    }
    Ok(())
}

async fn oldest_first(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    for nth in 1..=5 {
        opened.keep(&dead_letter(nth)).await?;
    }
    let seen: Vec<_> = opened.list(3).await?.into_iter().map(|(_, dead)| dead).collect();
    let expected = [1, 2, 3].map(dead_letter);
    ensure!(seen.starts_with(&expected), "expected the oldest three, saw {seen:?}");
    Ok(())
}

async fn no_more_than_asked(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let kept = [1, 2, 3, 4, 5].map(dead_letter);
    for dead in &kept {
        opened.keep(dead).await?;
    }
    opened.listed(&kept).await?;
    let until = Instant::now() + opened.wait;
    while Instant::now() < until {
        let seen = opened.list(3).await?;
        ensure!(seen.len() <= 3, "expected three, saw {seen:?}");
        if seen.len() == 3 {
            return Ok(());
        }
    }
    Err(Failure::new(format!("expected three in {:?}, saw fewer", opened.wait)))
}

async fn taken_once(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    for nth in 1..=3 {
        opened.keep(&dead_letter(nth)).await?;
    }
    opened.listed(&[1, 2, 3].map(dead_letter)).await?;
    let id = id_of(&opened, 3, &dead_letter(2)).await?;
    let taken = opened.take(&id).await?;
    ensure!(taken == Some(dead_letter(2)), "expected the one of this id, saw {taken:?}");
    let again = opened.take(&id).await?;
    ensure!(again.is_none(), "expected that it is gone, saw {again:?}");
    opened.listed(&[1, 3].map(dead_letter)).await?;
    Ok(())
}

async fn two_alike(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let dead = dead_letter(1);
    opened.keep(&dead).await?;
    opened.keep(&dead).await?;
    let ids = opened.listed(&[dead.clone(), dead.clone()]).await?;
    for left in [1, 0] {
        let taken = opened.take(&ids[left]).await?;
        ensure!(taken.as_ref() == Some(&dead), "expected one of the two, saw {taken:?}");
        opened.listed(&vec![dead.clone(); left]).await?;
    }
    Ok(())
}

async fn never_kept(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    opened.keep(&dead_letter(1)).await?;
    let taken = opened.take(&DeadLetterId::of(&dead_letter(2))).await?;
    ensure!(taken.is_none(), "expected nothing under an unknown id, saw {taken:?}");
    opened.listed(&[dead_letter(1)]).await?;
    Ok(())
}

async fn kept_at_once(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let kept: Vec<_> = (0..20).map(dead_letter).collect();
    let keeping = kept.iter().cloned().map(|dead| {
        let store = Arc::clone(&opened.store);
        tokio::spawn(async move { store.keep(&dead).await })
    });
    for result in join_all(keeping).await {
        let result = result.map_err(|error| Failure::new(error.to_string()))?;
        done("keep a dead letter", result)?;
    }
    opened.listed(&kept).await?;
    Ok(())
}

async fn taken_at_once(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    opened.keep(&dead_letter(1)).await?;
    opened.listed(&[dead_letter(1)]).await?;
    let id = id_of(&opened, 1, &dead_letter(1)).await?;
    let (one, two) = tokio::join!(opened.take(&id), opened.take(&id));
    let taken: Vec<_> = [one?, two?].into_iter().flatten().collect();
    ensure!(taken.len() <= 1, "expected that one of two gets it, saw {taken:?}");
    // Neither may have found it: each may have looked while the other held it.
    opened.listed(&vec![dead_letter(1); 1 - taken.len()]).await?;
    Ok(())
}

async fn there_for_whoever_opens_it_again(harness: &dyn Harness) -> Checked {
    let mut opened = Opened::new(harness).await?;
    let kept = [1, 2].map(dead_letter);
    for dead in &kept {
        opened.keep(dead).await?;
    }
    opened.store = done("open the store again", opened.storage.open().await)?;
    opened.listed(&kept).await?;
    Ok(())
}

async fn a_full_store_says_so(harness: &dyn Harness) -> Checked {
    let storage = done("start a small storage", harness.start_small().await)?;
    let opened = Opened::on(storage, harness).await?;
    let large = |nth| {
        let raw = vec![b'x'; 512];
        DeadLetter::new("invalid-envelope", "", "agents.a.requests", nth, raw.into())
    };
    let mut kept = Vec::new();
    let refused = loop {
        let dead = large(kept.len() as u64);
        match opened.store.keep(&dead).await {
            Ok(()) => kept.push(dead),
            Err(error) => break error,
        }
        ensure!(kept.len() <= 100, "expected no room after a hundred, saw it keep one more");
    };
    let is_full = matches!(refused, DeadLetterError::NoRoom);
    ensure!(is_full, "expected that it says that there is no room, saw {refused:?}");
    opened.listed(&kept).await?;
    let id = id_of(&opened, kept.len(), &kept[0]).await?;
    opened.take(&id).await?;
    kept[0] = large(1000);
    opened.keep(&kept[0]).await?;
    opened.listed(&kept).await?;
    Ok(())
}

async fn too_large_is_refused(harness: &dyn Harness) -> Checked {
    let opened = Opened::new(harness).await?;
    let too_large = harness.promises().too_large.unwrap_or_default();
    let of_size = |size| DeadLetter::new("attempts", "", "t", 1, vec![b'x'; size].into());
    let refused = opened.store.keep(&of_size(too_large)).await;
    let is_refused = matches!(refused, Err(DeadLetterError::TooLarge));
    ensure!(is_refused, "expected that it is too large, saw {refused:?}");
    opened.keep(&of_size(too_large / 10)).await?;
    opened.listed(&[of_size(too_large / 10)]).await?;
    Ok(())
}
