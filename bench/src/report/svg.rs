//! Charts: one file that needs nothing else, readable on light and on dark.
//!
//! Bars lie on a logarithmic scale, since the slowest and the fastest are apart by factors of
//! hundreds. A thin line across the end of a bar goes from the least round to the most.

use std::fmt::Write as _;

use super::text::number;
use super::{Cell, Column, Group, Machine, Report};

const WIDTH: f64 = 860.0;
const LABELS: f64 = 150.0;
const BARS: f64 = 520.0;
const LINE: f64 = 20.0;

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-size:18px;font-weight:600}\
.s{font-weight:600}.n{fill:#59636e;font-size:12px}.g{stroke:#d1d9e0}\
.q{fill:#0969da}.p{fill:#8c959f}.l{fill:#c9a400}.w{stroke:#1f2328;stroke-opacity:.55}\
.b{fill:#ffffff}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.g{stroke:#3d444d}\
.q{fill:#4493f8}.p{fill:#656c76}.l{fill:#d29922}.w{stroke:#e6edf3}.b{fill:#0d1117}}";

/// All that is worth one.
pub fn chart(report: &Report, machine: &Machine) -> String {
    let charted = report.columns.iter().enumerate().filter(|(_, column)| column.charted);
    let panels = charted.flat_map(|column| report.groups.iter().map(move |group| (column, group)));
    draw(report, machine, panels)
}

/// The first and the last column of the last setting, for a reader who wants to see one thing.
pub fn short_chart(report: &Report, machine: &Machine) -> String {
    let charted = || report.columns.iter().enumerate().filter(|(_, column)| column.charted);
    let columns = charted().next().into_iter().chain(charted().skip(1).last());
    let panels = columns.filter_map(|column| Some((column, report.groups.last()?)));
    draw(report, machine, panels)
}

fn draw<'a>(
    report: &Report,
    machine: &Machine,
    panels: impl Iterator<Item = ((usize, &'a Column), &'a Group)>,
) -> String {
    let mut body = String::new();
    let mut y = 34.0;
    line(&mut body, 16.0, y, "t", report.title);
    let scale = "logarithmic scale; thin lines go from the least round to the most".to_owned();
    for note in report.notes.iter().chain([&scale, &machine.line()]) {
        y += LINE;
        line(&mut body, 16.0, y, "n", note);
    }
    for ((index, column), group) in panels {
        y = panel(&mut body, y + 36.0, index, column, group);
    }
    let height = y + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\
         <style>{STYLE}</style><rect class=\"b\" width=\"{WIDTH}\" height=\"{height}\"/>{body}</svg>\n",
        escaped(report.title)
    )
}

/// One column of one setting. Returns where it ends.
fn panel(body: &mut String, top: f64, index: usize, column: &Column, group: &Group) -> f64 {
    let spreads = group.rows.iter().filter_map(|row| row.cells[index].spread());
    let positive = spreads.filter(|spread| spread.min > 0.0);
    let (least, most) = positive.fold((f64::MAX, 0.0_f64), |(least, most), spread| {
        (least.min(spread.min), most.max(spread.max))
    });
    line(body, 16.0, top, "s", &format!("{}: {}", group.setting, column.name));
    if most == 0.0 {
        return top;
    }
    // From the power of ten below the least, so that every bar has a length.
    let (first, last) = (least.log10().floor(), most.log10().ceil());
    let (first, last) = if first == least.log10() { (first - 1.0, last) } else { (first, last) };
    let x = |figure: f64| 16.0 + LABELS + BARS * (figure.log10() - first) / (last - first);
    let bottom = top + 12.0 + LINE * group.rows.len() as f64;
    for power in first as i32..=last as i32 {
        let at = x(10_f64.powi(power));
        let _ = write!(
            body,
            "<line class=\"g\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>",
            top + 8.0
        );
    }
    let mut y = top + 12.0;
    for row in &group.rows {
        let base = y + 14.0;
        line(body, 16.0, base, "", &row.system);
        match (&row.cells[index], row.cells[index].spread()) {
            (_, Some(spread)) if spread.min > 0.0 => {
                let (end, from, to) = (x(spread.median), x(spread.min), x(spread.max));
                let _ = write!(
                    body,
                    "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" \
                     rx=\"2\"/><line class=\"w\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{:.1}\" \
                     y2=\"{:.1}\"/>",
                    colour(&row.system),
                    16.0 + LABELS,
                    y + 3.0,
                    end - 16.0 - LABELS,
                    y + 10.0,
                    y + 10.0
                );
                line(body, to.max(end) + 6.0, base, "n", &number(spread.median));
            }
            (Cell::Words(_), _) => {
                // The reason stands in the first column of a row, whichever of them is charted.
                let words = row.cells.iter().find_map(|cell| match cell {
                    Cell::Words(words) if !words.is_empty() => Some(words.as_str()),
                    _ => None,
                });
                line(body, 20.0 + LABELS, base, "n", words.unwrap_or("-"));
            }
            (_, Some(spread)) => line(body, 20.0 + LABELS, base, "n", &number(spread.median)),
            (_, None) => line(body, 20.0 + LABELS, base, "n", "-"),
        }
        y += LINE;
    }
    bottom
}

fn colour(system: &str) -> &'static str {
    use crate::own::{BARE, REDIS_BENCHMARK, TCP};
    match system {
        BARE | TCP | REDIS_BENCHMARK => "l",
        name if name.starts_with("quorlock") => "q",
        _ => "p",
    }
}

fn line(body: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ =
        write!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stands_alone_and_says_where_and_when() {
        let svg = chart(&super::super::tests::example(), &Machine::example());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("An &lt;example&gt;") && svg.contains("missing: `go` &amp; all"));
        assert!(svg.contains("2026-01-02, Some CPU, 2 cores"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"));
        // Nothing is fetched.
        assert!(!svg.contains("href") && !svg.contains("url("), "{svg}");
        assert!(svg.contains("1 node: CPU µs") && !svg.contains("1 node: p50"));
    }

    #[test]
    fn bars_are_in_order_of_their_figures() {
        let mut report = super::super::tests::example();
        report.groups[0].rows[1].cells[0] = Cell::one(30.0);
        let svg = chart(&report, &Machine::example());
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(3)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 2, "{svg}");
        assert!(widths[0] > 0.0 && widths[0] < widths[1], "{widths:?}");
        assert!(widths[1] <= BARS);
    }
}
