//! The pictures in a real browser.

use std::fs;
use std::process::Command;

use quorlock_simulator::{Dialect, SCENARIOS, html};
use quorlock_testkit::{skipping, test};

/// Measures what was drawn, and leaves it in the page.
const MEASURE: &str = "<script>
const outside = [...document.querySelectorAll('svg')].flatMap(svg => {
  const box = svg.viewBox.baseVal;
  return [...svg.querySelectorAll('rect,line,text')].filter(it => {
    const b = it.getBBox();
    return b.x < -0.5 || b.y < -0.5 || b.x + b.width > box.width + 0.5 || b.y + b.height > box.height + 0.5;
  }).map(it => it.outerHTML);
});
const seen = [...document.querySelectorAll('rect.held')].filter(it => it.getBoundingClientRect().width > 5);
const loaded = performance.getEntriesByType('resource').length;
document.title = `MEASURED outside=${outside.length} held=${seen.length} loaded=${loaded}`;
</script></body>";

#[test]
fn a_browser_draws_all_of_it_within_its_frame_and_loads_nothing() {
    let chromium = skipping::program("chromium");
    let folder = std::env::temp_dir().join(format!("quorlock-pictures-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for scenario in &SCENARIOS {
        let (redlock, strict) = (scenario.play(Dialect::Redlock), scenario.play(Dialect::Strict));
        let page = html(scenario.title, scenario.about, &[("a", &redlock), ("b", &strict)]);
        let file = folder.join("page.html");
        fs::write(&file, page.replace("</body>", MEASURE)).expect("a page");
        let browser = Command::new(&chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("file://{}", file.display()))
            .output()
            .expect("chromium starts");
        let dom = String::from_utf8_lossy(&browser.stdout).into_owned();
        let measured = dom.split("MEASURED ").nth(1).and_then(|rest| rest.split('<').next());
        let held = if scenario.name == "three-way-split" { 6 } else { 4 };
        let expected = format!("outside=0 held={held} loaded=0");
        assert_eq!(measured, Some(expected.as_str()), "{}", scenario.name);
    }
    fs::remove_dir_all(&folder).expect("the folder goes");
}
