//! Tables for a terminal.

use std::fmt::Write as _;

use super::{Cell, Report, Spread};

/// All of it: the title, the notes, a table for each setting.
pub fn tables(report: &Report) -> String {
    let mut text = format!("\n{}\n", report.title);
    for note in &report.notes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {note}");
    }
    for group in &report.groups {
        let mut lines = vec![vec![group.setting.clone()]];
        lines[0].extend(report.columns.iter().map(|column| column.name.to_owned()));
        for row in &group.rows {
            let cells = row.cells.iter().map(shown);
            lines.push([row.system.clone()].into_iter().chain(cells).collect());
        }
        text.push('\n');
        text.push_str(&aligned(&lines));
    }
    text
}

/// The first column to the left, the others to the right. Words may run over the columns after them.
fn aligned(lines: &[Vec<String>]) -> String {
    let is_figure = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit());
    let width = |column: usize| {
        let cells = lines.iter().enumerate().filter_map(|(index, line)| {
            let cell = line.get(column)?;
            (column == 0 || index == 0 || is_figure(cell)).then(|| cell.chars().count())
        });
        cells.max().unwrap_or(0)
    };
    let mut text = String::new();
    for line in lines {
        let mut row = format!("{:<1$}", line[0], width(0));
        for (column, cell) in line.iter().enumerate().skip(1) {
            let _ = write!(row, "  {cell:>0$}", width(column));
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

/// The median, and between which figures it lies.
fn shown(cell: &Cell) -> String {
    match (cell, cell.spread()) {
        (Cell::Words(words), _) => words.clone(),
        (_, None) => "-".to_owned(),
        (_, Some(Spread { median, min, max })) if min == max => number(median),
        (_, Some(Spread { median, min, max })) => {
            format!("{} ({}..{})", number(median), number(min), number(max))
        }
    }
}

/// Three digits that matter, and thousands apart.
pub fn number(figure: f64) -> String {
    let decimals = match figure.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{figure:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.trim_start_matches('-');
    let mut apart = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            apart.push(',');
        }
        apart.push(digit);
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    format!("{sign}{apart}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (figure, text) in [
            (0.0, "0"),
            (0.126, "0.13"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1_234.0, "-1,234"),
        ] {
            assert_eq!(number(figure), text);
        }
    }

    #[test]
    fn a_table_has_every_system_and_reasons_do_not_widen_it() {
        let text = tables(&super::super::tests::example());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1..3], ["An <example>", "  a note"]);
        assert_eq!(lines[4], "1 node             CPU µs  p50 µs");
        assert_eq!(lines[5], "one     3.00 (1.00..20.0)  12,346");
        assert_eq!(lines[6].trim_end(), "two     missing: `go` & all");
    }
}
