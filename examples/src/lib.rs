//! The programs in the README and the docs compile and run, as the tests of this crate's
//! documentation. The examples are beside this folder.

#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/start.md")]
    struct Start;
    #[doc = include_str!("../../docs/call.md")]
    struct Call;
    #[doc = include_str!("../../docs/serve.md")]
    struct Serve;
    #[doc = include_str!("../../docs/production.md")]
    struct Production;
    #[doc = include_str!("../../docs/transports.md")]
    struct Transports;
    #[doc = include_str!("../../docs/stores.md")]
    struct Stores;
}
