use plugpull_model::event::Event;
use plugpull_model::verdict::{Role, Verdict};
use plugpull_reports::Report;

use crate::samples::*;

#[test]
fn the_page_tells_the_whole_run() {
    let page = Report::from_events(&quickstart()).to_html();
    let body = page
        .split_once("</head>")
        .expect("a body")
        .1
        // One element a line, so that a difference can be read.
        .replace("><", ">\n<");
    insta::assert_snapshot!(body);
}

#[test]
fn the_page_loads_and_runs_nothing() {
    for events in [quickstart(), upheld(), killed(), Vec::new()] {
        let page = Report::from_events(&events).to_html();
        for forbidden in [
            "<script", "<link", "<img", "<iframe", "@import", "url(", "http://", "https://",
            "src=", "onclick",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}

#[test]
fn the_page_is_made_for_light_dark_and_paper() {
    let page = Report::from_events(&upheld()).to_html();
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("@media print"));
}

#[test]
fn the_page_repeats_what_the_cutter_loses_and_what_green_does_not_mean() {
    let page = Report::from_events(&upheld()).to_html();
    for part in [
        "Loses",
        "Does not lose",
        "Confirms by",
        "Needs",
        "What a green run does not mean",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn foreign_text_is_escaped() {
    let events = [
        started(vec![name("s", "d", Role::Subject)]),
        finished(
            "s@d",
            1,
            Verdict::Refused("<script>alert(1)</script>".to_owned()),
            exhaustive(),
            &[],
        ),
    ];
    let page = Report::from_events(&events).to_html();
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn the_page_tells_every_setting_of_a_drive() {
    let cell = "ext4-barrier@volatile-512";
    let events = [Event::Planned {
        cell: Box::new(planned(cell)),
    }];
    let page = Report::from_events(&events).to_html();
    for (name, setting) in [
        ("cache", "volatile"),
        ("cache size", "1 MiB"),
        ("cache reported", "write back"),
        ("flush", "honoured"),
        ("FUA", "honoured"),
        ("logical block", "512 bytes"),
        ("atomic write", "512 bytes"),
        ("atomic boundary", "16 KiB"),
        ("survivors", "any"),
        ("in flight", "any"),
        ("discard reads", "zero"),
        ("service times", "write 20 us, flush 50 us"),
        (
            "recovered by",
            "<code>e2fsck -p DEVICE</code>, then <code>mount</code>",
        ),
    ] {
        let row = format!("<dt>{name}</dt><dd>{setting}</dd>");
        assert!(page.contains(&row), "{row}");
    }
    assert!(page.contains("mkfs.ext4 -q -b 4096 -J size=4 DEVICE"));
    assert!(page.contains("<h2>Planted faults</h2>"));
    assert!(page.contains("<li>shorn</li><li>write-eio from base+5 until base+9</li>"));
}
