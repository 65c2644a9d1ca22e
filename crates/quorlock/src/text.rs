//! Text of others, made fit to be shown to people.
//!
//! Servers, and clients that can write to them, may say anything: what would make a terminal do something,
//! what hides or turns around the text beside it, or a megabyte of it.

use std::borrow::Cow;

/// The text with everything escaped that is not to be seen, and cut after so many characters. Escaping
/// it again changes nothing.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "other nodes only know failures"))]
pub(crate) fn harmless(text: &str, most: usize) -> Cow<'_, str> {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    if end.is_none() && text.chars().all(is_seen) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text[..end.unwrap_or(text.len())].chars() {
        if is_seen(c) { shown.push(c) } else { shown.extend(c.escape_debug()) }
    }
    if end.is_some() {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// Whether a character stands for itself in a line of text, and does nothing else.
fn is_seen(c: char) -> bool {
    matches!(c, ' '..='~') || !c.is_ascii() && c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_something_is_escaped() {
        for (text, shown) in [
            ("plain: 'a' \"b\" \\ µ→漢", "plain: 'a' \"b\" \\ µ→漢"),
            ("\x1b[2J\x07\r\n\t\0\x7f", "\\u{1b}[2J\\u{7}\\r\\n\\t\\0\\u{7f}"),
            ("\u{9b}31m\u{85}", "\\u{9b}31m\\u{85}"),
            (
                "\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}",
                "\\u{202e}\\u{2066}\\u{200b}\\u{feff}\\u{e0041}",
            ),
        ] {
            assert_eq!(harmless(text, 100), shown);
        }
        assert_eq!(harmless("abcd", 4), "abcd");
        assert_eq!(harmless("abcde", 4), "abcd…");
    }

    proptest! {
        #[test]
        fn nothing_is_escaped_twice(text: String) {
            let shown = harmless(&text, usize::MAX);
            prop_assert!(shown.chars().all(is_seen));
            prop_assert_eq!(harmless(&shown, usize::MAX), &*shown);
        }
    }
}
