//! A run as a picture: one HTML file with SVG in it, or one SVG file, that needs nothing else.

mod drawing;

use std::fmt::Write as _;

use crate::Outcome;
use drawing::Drawing;

/// The height of the line above each run in an SVG file.
const CAPTION: f64 = 34.0;

/// A picture of one run or of several, one below the other, with a title and some words.
#[must_use]
pub fn html(title: &str, about: &str, runs: &[(&str, &Outcome)]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<p>{about}</p>\n",
        title = escaped(title),
        about = escaped(about)
    );
    page.push_str(LEGEND);
    for (name, outcome) in runs {
        let setup = &outcome.setup;
        let _ = writeln!(
            page,
            "<section><h2>{}</h2><p class=\"sub\">{} nodes, {} processes, TTL {:?}, seed {}</p>",
            escaped(name),
            setup.nodes,
            setup.clients,
            setup.ttl,
            setup.seed
        );
        page.push_str(&verdict(outcome));
        let drawn = Drawing::of(outcome).svg("role=\"img\"");
        let _ = write!(page, "<div class=\"frame\">{drawn}</div>");
        page.push_str(&faults_of(outcome));
        page.push_str("</section>\n");
    }
    page.push_str("</body></html>\n");
    page
}

/// The same as one SVG file, for pages that show pictures: without the words.
#[must_use]
pub fn svg(title: &str, runs: &[(&str, &Outcome)]) -> String {
    let (mut body, mut width, mut height) = (String::new(), 0.0_f64, CAPTION);
    for (name, outcome) in runs {
        let verdict = match outcome.violations.first() {
            Some(violation) => format!("<tspan class=\"bad\">{}</tspan>", escaped(&violation.text)),
            None => "<tspan class=\"good\">every promise was kept</tspan>".to_owned(),
        };
        let _ = writeln!(
            body,
            "<text class=\"caption\" x=\"6\" y=\"{height:.0}\">{}: {verdict}</text>",
            escaped(name)
        );
        let drawing = Drawing::of(outcome);
        let size = drawing.size();
        body.push_str(&drawing.svg(&format!("y=\"{:.0}\"", height + 6.0)));
        width = width.max(size.0);
        height += size.1 + CAPTION;
    }
    let height = height - CAPTION / 2.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        escaped(title)
    )
}

fn verdict(outcome: &Outcome) -> String {
    let mut text = String::new();
    if outcome.violations.is_empty() {
        text.push_str("<p class=\"good\">Every promise was kept.</p>");
    }
    for violation in outcome.violations.iter().take(3) {
        let _ = write!(text, "<p class=\"bad\">{}</p>", escaped(&violation.to_string()));
    }
    text
}

/// The faults in words, with the numbers that they have in the picture.
fn faults_of(outcome: &Outcome) -> String {
    let drawing = Drawing::of(outcome);
    let seen = outcome.plan.faults.iter().filter(|fault| drawing.is_seen(fault.at));
    let items: Vec<_> =
        seen.map(|fault| format!("<li>{}</li>", escaped(&fault.to_string()))).collect();
    if items.is_empty() { String::new() } else { format!("<ol>{}</ol>\n", items.concat()) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--faint:#ddd;--soft:#777}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#16181c;--faint:#333;--soft:#999}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:1560px;padding:0 1rem}\
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 0}p{max-width:75ch}.sub{color:var(--soft);margin:0}\
.good{color:#2a8a3e;font-weight:600}.bad{color:#d33;font-weight:600}\
.frame{overflow-x:auto}.legend{color:var(--soft);font-size:.9rem;max-width:none}.legend b{color:var(--ink)}\
.paper{fill:var(--paper)}svg .caption{font-size:18px;font-weight:600}svg .bad{fill:#d33}svg .good{fill:#2a8a3e}\
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .number{font-size:10px;fill:#d33;text-anchor:end}ol{color:var(--soft);font-size:.9rem}svg .tick{fill:var(--soft);text-anchor:middle}\
.grid{stroke:var(--faint)}.lane{stroke:var(--faint);stroke-width:2}\
.yes,.no,.mute,.back{stroke-width:.8;opacity:.55}.yes{stroke:#3f9b4f}.no{stroke:#e08a1e}.mute{stroke:#d33;stroke-dasharray:3 3}\
.back{stroke:var(--soft);opacity:.3}.record{opacity:.75}.held{rx:3;stroke:var(--ink);stroke-width:1}\
.double{stroke:#d33;stroke-width:3}.still{opacity:.28}.quiet{opacity:.45}.down{opacity:.85}\
.fault{opacity:.8}.broken{stroke:#d33;stroke-width:2;stroke-dasharray:6 4}\
svg .told{fill:#d33;font-weight:700}svg .fine{fill:#3f9b4f;text-anchor:middle}svg .stale{fill:#d33;font-weight:700;font-size:16px;text-anchor:middle}";

const LEGEND: &str = "<p class=\"legend\"><b>Processes:</b> a bar while one believes to hold the lock; grey \
while it does not run; <b>lost</b> where it is told. <b>Nodes:</b> a bar in the colour of the process whose \
record it has; grey while it casts no vote; black while it is gone. <b>Lines:</b> requests, green if done, \
orange if refused, dashed red if not looked at; grey for replies. <b>Resource:</b> ● a write, ✗ one that \
came too late and is refused where fences are checked. <b>Red above:</b> faults, by their numbers in the \
list below. Point at anything to read more.</p>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, SCENARIOS};

    #[test]
    fn a_picture_needs_nothing_else_and_is_well_formed() {
        for scenario in &SCENARIOS {
            let (redlock, strict) =
                (scenario.play(Dialect::Redlock), scenario.play(Dialect::Strict));
            let page =
                html(scenario.title, scenario.about, &[("redlock", &redlock), ("strict", &strict)]);
            assert!(!page.contains("http") && !page.contains("src=") && !page.contains("@import"));
            for tag in ["svg", "section", "rect", "text", "title", "p"] {
                let opened = page.matches(&format!("<{tag} ")).count()
                    + page.matches(&format!("<{tag}>")).count();
                let closed = page.matches(&format!("</{tag}>")).count();
                assert_eq!(opened, closed, "{tag} in {}", scenario.name);
            }
            assert_eq!(page.contains("held double"), scenario.redlock_breaks.is_some());
            assert!(!page.contains("NaN") && !page.contains("inf"), "{}", scenario.name);
        }
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escaped("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
