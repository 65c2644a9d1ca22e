//! Whose clock is wrong.

/// By how much the clocks of all nodes are ahead of this machine's (or behind it, if negative), if that is about the
/// same for all of them. Then it is this machine's clock that is wrong: the others agree. In microseconds; what is
/// measured differs by what a request takes.
pub(crate) fn in_common(offsets_us: &[i64]) -> Option<i64> {
    let (least, most) = (*offsets_us.iter().min()?, *offsets_us.iter().max()?);
    let same_side = least > 0 || most < 0;
    let spread = most.abs_diff(least);
    let near = least.unsigned_abs().min(most.unsigned_abs());
    let alike = offsets_us.len() > 1 && same_side && spread <= 50_000 + near / 10;
    alike.then(|| least + (most - least) / 2)
}

/// What is wrong with this machine's clock, if those of the nodes differ from it by so much.
pub(crate) fn of_this_machine(ahead_us: i64) -> &'static str {
    if ahead_us > 0 { "behind" } else { "ahead" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_agree_are_right() {
        assert_eq!(in_common(&[2_000_000, 2_030_000, 1_990_000]), Some(2_010_000));
        assert_eq!(in_common(&[-3_600_000_000, -3_600_100_000]), Some(-3_600_050_000));
        for apart in [
            &[2_000_000][..],
            &[],
            &[2_000_000, 30_000],
            &[400_000, -400_000],
            &[900_000, 1_100_000],
        ] {
            assert_eq!(in_common(apart), None, "{apart:?}");
        }
        assert_eq!((of_this_machine(1), of_this_machine(-1)), ("behind", "ahead"));
    }
}
