//! Durations as people write them, and as they like to read them.

use std::time::Duration;

/// The units, longest first; each may stand once, in this order.
const UNITS: [(&str, f64); 4] = [("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];

/// Durations above this are taken for a mistake: it is more than 10 000 years.
const MOST_SECONDS: f64 = 1e12;

/// Reads `10s`, `1m30s`, `500ms`, `2h`, or a plain number of seconds.
///
/// # Errors
/// A message that has the text and the forms, if it is none of them.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    seconds(text)
        .filter(|seconds| *seconds <= MOST_SECONDS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            format!(
                "{text:?} is no duration; write 10s, 1m30s, 500ms or 2h, or a plain number of \
                 seconds such as 0.5"
            )
        })
}

fn seconds(text: &str) -> Option<f64> {
    if let Some(seconds) = number(text) {
        return Some(seconds);
    }
    let mut rest = text;
    let mut allowed = &UNITS[..];
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| c.is_ascii_alphabetic());
        let (unit, after) = split_where(after, |c| !c.is_ascii_alphabetic());
        let place = allowed.iter().position(|(name, _)| *name == unit)?;
        sum += number(digits)? * allowed[place].1;
        allowed = &allowed[place + 1..];
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Digits with at most one point among them. What else Rust takes for a number, such as `-1`, `1e3`
/// and `inf`, is more likely a slip here.
fn number(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if plain { text.parse().ok() } else { None }
}

/// A duration as people like to read it: no more digits than anybody needs.
pub(crate) fn shown(duration: Duration) -> String {
    let millis = duration.as_millis();
    let seconds = duration.as_secs();
    match millis {
        0..1_000 => format!("{millis}ms"),
        // Cut off, not rounded: a lock does not last longer than it says.
        1_000..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        for (text, millis) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("1h0m1s5ms", 3_601_005),
            ("1.5m", 90_000),
            ("0.5", 500),
            (".25", 250),
            ("7", 7_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else_and_names_it_and_the_forms() {
        for text in [
            "",
            " ",
            "-1",
            "-1s",
            "+1",
            "NaN",
            "inf",
            "1e3",
            "1d",
            "s",
            "10 s",
            "1s1s",
            "1s1m",
            "1.2.3",
            ".",
            "1_000",
            "10S",
            "1m30",
            "٣s",
            "99999999999999999999h",
            "1e400",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains("1m30s"), "{error}");
        }
        assert!(parse(&"9".repeat(400)).is_err(), "a number that is too large for any type");
    }

    #[test]
    fn shows_few_digits_and_never_too_much() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (8_998, "8.9s"),
            (59_999, "59.9s"),
            (90_000, "1m30s"),
            (3_660_000, "1h1m"),
        ] {
            assert_eq!(shown(Duration::from_millis(millis)), text);
        }
    }
}
