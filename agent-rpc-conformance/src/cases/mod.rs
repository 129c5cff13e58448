//! The cases, by theme. A case's name is its sentence in the contract.

mod admission;
mod bytes;
mod calls;
mod closing;
mod dead_letters;
mod ending;
mod flow;
mod holding;
mod live;
mod once;
mod peers;
mod restart;
mod routing;
mod settling;

pub(crate) use crate::case::Case;

/// Every case, in the order in which they are run. Those that restart a broker come first: they
/// run one after another and would otherwise be waited for at the end.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let themes = [
        restart::CASES,
        live::CASES,
        routing::CASES,
        settling::CASES,
        bytes::CASES,
        flow::CASES,
        closing::CASES,
        calls::CASES,
        admission::CASES,
        ending::CASES,
        once::CASES,
        holding::CASES,
        dead_letters::CASES,
    ];
    themes.into_iter().flatten()
}
