//! The code in `docs/recipes/fencing.md`.

/// The page.
const PAGE: &str = include_str!("../../../../docs/recipes/fencing.md");

/// The block of SQL under this comment.
pub(crate) fn sql(comment: &str) -> &'static str {
    let start = format!("```sql\n-- {comment}\n");
    let (_, rest) = PAGE.split_once(&start).unwrap_or_else(|| panic!("no SQL to {comment}"));
    rest.split_once("```").expect("every block ends").0
}

/// The lines of the only block of shell commands.
pub(crate) fn shell() -> impl Iterator<Item = &'static str> {
    let (_, rest) = PAGE.split_once("```sh\n").expect("a block of shell commands");
    rest.split_once("```").expect("every block ends").0.lines()
}
