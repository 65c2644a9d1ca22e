//! What was measured, and how it is shown: as text, as JSON and as a chart.

mod machine;
mod svg;
mod text;

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

pub use self::machine::Machine;

/// The tables of one benchmark.
pub struct Report {
    /// As it is called on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    pub columns: Vec<Column>,
    pub groups: Vec<Group>,
}

pub struct Column {
    pub name: &'static str,
    /// Whether it is worth a chart.
    pub charted: bool,
}

/// The rows of one setting, such as a number of nodes.
pub struct Group {
    pub setting: String,
    pub rows: Vec<Row>,
}

pub struct Row {
    pub system: String,
    pub cells: Vec<Cell>,
}

/// What stands in a table.
#[derive(Debug, Clone)]
pub enum Cell {
    /// The figures of several rounds.
    Figures(Vec<f64>),
    /// Why there are none.
    Words(String),
}

/// The figures of several rounds in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Cell {
    pub fn one(figure: f64) -> Self {
        Self::Figures(vec![figure])
    }

    /// `None` if there is nothing to show: no rounds, or something that was divided by zero.
    pub fn spread(&self) -> Option<Spread> {
        let Self::Figures(figures) = self else { return None };
        let mut sorted: Vec<f64> = figures.iter().copied().filter(|f| f.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        // With two in the middle, what lies between them.
        let (upper, lower) = (sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2]);
        Some(Spread { median: f64::midpoint(lower, upper), min, max })
    }
}

impl Row {
    /// The row of a system that has no figures.
    pub fn without(system: &str, why: &str, columns: usize) -> Self {
        let mut cells = vec![Cell::Words(why.to_owned())];
        cells.resize(columns, Cell::Words(String::new()));
        Self { system: system.to_owned(), cells }
    }
}

impl Report {
    pub fn print(&self) {
        print!("{}", text::tables(self));
    }

    /// Writes `NAME.json`, `NAME.svg` and the smaller `NAME.short.svg` into a folder.
    pub fn save(&self, folder: &Path, machine: &Machine) -> Result<()> {
        fs::create_dir_all(folder)?;
        let file = |extension| folder.join(format!("{}.{extension}", self.name));
        fs::write(file("json"), format!("{:#}\n", self.json(machine)))?;
        fs::write(file("svg"), svg::chart(self, machine))?;
        fs::write(file("short.svg"), svg::short_chart(self, machine))?;
        println!("written: {} and {}", file("json").display(), file("svg").display());
        Ok(())
    }

    fn json(&self, machine: &Machine) -> Value {
        let groups = self.groups.iter().map(|group| {
            let rows = group.rows.iter().map(|row| self.json_row(row));
            json!({ "setting": group.setting, "systems": rows.collect::<Vec<_>>() })
        });
        json!({
            "benchmark": self.name,
            "title": self.title,
            "notes": self.notes,
            "machine": machine.json(),
            "settings": groups.collect::<Vec<_>>(),
        })
    }

    fn json_row(&self, row: &Row) -> Value {
        let mut object = json!({ "system": row.system });
        for (column, cell) in self.columns.iter().zip(&row.cells) {
            match (cell, cell.spread()) {
                (_, Some(Spread { median, min, max })) => {
                    object[column.name] = json!({ "median": median, "min": min, "max": max });
                }
                (Cell::Words(words), None) if !words.is_empty() => object["note"] = json!(words),
                _ => {}
            }
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn example() -> Report {
        Report {
            name: "example",
            title: "An <example>",
            notes: vec!["a note".into()],
            columns: vec![
                Column { name: "CPU µs", charted: true },
                Column { name: "p50 µs", charted: false },
            ],
            groups: vec![Group {
                setting: "1 node".into(),
                rows: vec![
                    Row {
                        system: "one".into(),
                        cells: vec![Cell::Figures(vec![3.0, 1.0, 20.0]), Cell::one(12_345.6)],
                    },
                    Row::without("two", "missing: `go` & all", 2),
                ],
            }],
        }
    }

    #[test]
    fn rounds_are_a_median_and_its_spread() {
        let spread = |figures: &[f64]| Cell::Figures(figures.to_vec()).spread();
        assert_eq!(spread(&[3.0, 1.0, 20.0]), Some(Spread { median: 3.0, min: 1.0, max: 20.0 }));
        assert_eq!(spread(&[3.0, 1.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn who_has_no_figures_is_in_the_json_with_the_reason() {
        let json = example().json(&Machine::example());
        let systems = &json["settings"][0]["systems"];
        assert_eq!(systems[0]["CPU µs"], json!({ "median": 3.0, "min": 1.0, "max": 20.0 }));
        assert_eq!(systems[1], json!({ "system": "two", "note": "missing: `go` & all" }));
        assert_eq!(json["machine"]["date"], "2026-01-02");
    }
}
