//! What may have been meant by a word that is not known.

use strsim::osa_distance;

/// The known word that is most like this one, if any is much like it.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Letters that are missing, too many, wrong, or have changed places with their neighbours.
    let by_slips = known.into_iter().map(|known| (osa_distance(word, known), known));
    // A third of a word may be wrong, but not most of a short one.
    let most = (word.chars().count() / 3).clamp(1, 4);
    by_slips
        .filter(|(slips, _)| *slips <= most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_like_nothing_has_no_nearest() {
        let known = ["run", "acquire", "release", "list", "status"];
        assert_eq!(nearest("rnu", known), Some("run"));
        assert_eq!(nearest("aquire", known), Some("acquire"));
        assert_eq!(nearest("relase", known), Some("release"));
        assert_eq!(nearest("walk", known), None);
        assert_eq!(nearest("x", known), None);
    }
}
