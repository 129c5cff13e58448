//! Durations in files, as people write them: `15s`, `500ms`, `1m 30s`.
//!
//! For a field of a config: `#[serde(with = "agent_rpc_core::transport::duration")]`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// Writes a duration as text that [`deserialize`] reads.
///
/// # Errors
/// If the serializer fails.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Reads a duration from text with units.
///
/// # Errors
/// If the value is not a text, or not a duration with units.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as `15s`, `500ms` or `1m 30s`")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text)
                .map_err(|error| E::custom(format_args!("{error}: a duration is `15s` or `500ms`")))
        }
    }

    deserializer.deserialize_str(Text)
}

/// The same for a field of type `Option<Duration>`.
pub mod option {
    use super::{Deserializer, Duration, Serializer};

    /// Writes a duration, or nothing.
    ///
    /// # Errors
    /// If the serializer fails.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a duration from text with units; an absent field needs `#[serde(default)]`.
    ///
    /// # Errors
    /// If the value is not a text, or not a duration with units.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Config {
        #[serde(with = "super")]
        wait: Duration,
        #[serde(default, with = "super::option", skip_serializing_if = "Option::is_none")]
        age: Option<Duration>,
    }

    #[test]
    fn what_is_written_is_read() {
        for age in [None, Some(Duration::from_millis(1500))] {
            let config = Config { wait: Duration::from_secs(90), age };
            let text = serde_json::to_string(&config).unwrap();
            assert!(text.contains(r#""1m 30s""#), "{text}");
            assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        }
        let error = serde_json::from_str::<Config>(r#"{"wait":"15"}"#).unwrap_err().to_string();
        assert!(error.contains("15s"), "{error}");
    }
}
