//! The page on commands and the table of commands name the same ones.

use meridian_node::resp::table::{self, Kind, Own};
use std::collections::BTreeSet;

#[test]
fn every_command_is_documented_and_no_other() {
    let page = include_str!("../../../docs/commands.md");
    let table = page.split("## The table").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = table.expect("the page has a table").lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<String> = rows
        .clone()
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_lowercase)
        .collect();
    let known: BTreeSet<String> = table::all().iter().map(|entry| entry.name.to_owned()).collect();
    assert_eq!(documented, known);

    for entry in table::all() {
        let name = format!("`{}`", entry.name.to_uppercase());
        let row = rows.clone().find(|row| row.contains(&name)).expect("it is documented, as was just seen");
        for sub in entry.subcommands {
            let name = sub.subname().to_uppercase();
            assert!(row.contains(&format!("`{name}")), "{} {name}", entry.name);
        }
        let refused = matches!(entry.kind, Kind::Own(Own::Flush));
        assert_eq!(row.contains("| refused |"), refused, "{}", entry.name);
        let class = match (entry.kind, entry.is(table::WRITE), entry.is(table::READ)) {
            (Kind::Key(_), true, _) => &["| rmw |", "| write |"][..],
            (Kind::Key(_), _, true) => &["| read |"],
            (Kind::Each(_), ..) => &["| each: "],
            _ => &["|"],
        };
        assert!(class.iter().any(|class| row.contains(class)), "{}", entry.name);
    }
}
