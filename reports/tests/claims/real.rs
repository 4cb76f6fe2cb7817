//! The reports of a real run of the quickstart.

use plugpull_reports::{Report, Style, finding_in_words, read_events};
use serde_json::Value;

fn events() -> Vec<plugpull_model::event::Event> {
    read_events(include_str!("quickstart-events.jsonl").as_bytes()).expect("events")
}

fn table(width: usize) -> String {
    Report::from_events(&events()).to_table(Style {
        colour: false,
        width,
    })
}

#[test]
fn the_table_of_the_quickstart_is_read_at_a_glance() {
    insta::assert_snapshot!(table(120));
}

#[test]
fn at_120_columns_every_cell_has_one_line() {
    let json: Value =
        serde_json::from_str(&Report::from_events(&events()).to_json()).expect("JSON");
    let table = table(120);
    let rows: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    let cells = json["cells"].as_array().expect("cells");
    assert_eq!(rows.len(), 1 + cells.len(), "{table}");
    for (row, cell) in rows.iter().skip(1).zip(cells) {
        let id = cell["id"].as_str().expect("an id");
        assert_eq!(row.split_whitespace().next(), Some(id));
    }
}

#[test]
fn what_the_terminal_leaves_out_stands_in_the_other_reports() {
    let events = events();
    let report = Report::from_events(&events);
    let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let html = report.to_html();
    let finding = events
        .iter()
        .find_map(|event| match event {
            // A cell whose only findings are images that do not mount.
            plugpull_model::event::Event::Found { finding }
                if finding.cell == "ext4-async-commit@volatile" =>
            {
                Some(finding)
            }
            _ => None,
        })
        .expect("a finding");
    let whole = &finding.breach.observed;
    let in_json = &json["cells"][2]["first_finding"]["breach"]["observed"];
    assert_eq!(in_json.as_str(), Some(whole.as_str()));
    assert!(html.contains(whole.as_str()));
    assert!(finding_in_words(finding).contains(whole.as_str()));
    let unbroken = report.to_table(Style {
        colour: false,
        width: 10_000,
    });
    assert!(!unbroken.contains(whole.as_str()));
    assert!(unbroken.contains(" more; "), "{unbroken}");
}
