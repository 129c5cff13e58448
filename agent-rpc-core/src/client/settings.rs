//! The settings of a client that can be replaced while its calls run.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::routes::RouteTable;
use crate::trust::Trust;
use crate::wire::Limits;

/// Routes, trust and limits. A call keeps those that it began with.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) routes: Arc<RouteTable>,
    pub(super) trust: Arc<dyn Trust>,
    pub(super) limits: Limits,
    /// How long a call waits that sets no timeout of its own.
    pub(super) default_timeout: Duration,
}

/// The one handle through which everybody reads the settings.
pub(super) struct SettingsHandle(RwLock<Arc<Settings>>);

impl SettingsHandle {
    pub(super) fn new(settings: Settings) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }

    pub(super) fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the settings for whoever reads them from now on.
    pub(super) fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut settings = Settings::clone(&current);
        change(&mut settings);
        let before = std::mem::replace(&mut *current, Arc::new(settings));
        drop(current);
        // Outside of the lock: a trust of somebody else's may go away with it.
        drop(before);
    }
}
