//! Renders the reports of a run again from its `events.jsonl`:
//! `cargo run -p plugpull-reports --example render -- RUN/events.jsonl FOLDER`
//! writes `report.json` and `report.html` into FOLDER and prints the table.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use plugpull_reports::{Report, Style, read_events};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(events), Some(folder)) = (words.next(), words.next()) else {
        return Err("give the path of an events.jsonl and a folder to write to".into());
    };
    let report = Report::from_events(&read_events(BufReader::new(File::open(events)?))?);
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("report.json"), report.to_json())?;
    fs::write(folder.join("report.html"), report.to_html())?;
    print!("{}", report.to_table(Style::default()));
    Ok(())
}
