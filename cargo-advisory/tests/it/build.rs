//! A build leaves the inventory next to each artifact, and fails on a collision.

use std::fs;
use std::path::Path;

use crate::programs::{assert_has, built, inventory, shop};

#[test]
fn a_collision_between_crates_fails_the_build() {
    let said = built();
    assert_eq!(said.code, Some(1), "{said:?}");
    let found = "error: advisory lock keys can collide: `<account>:<month>` and `<tenant>:<slot>`";
    assert_has(&said.err, found);
    assert_eq!(said.out, "");
}

#[test]
fn each_artifact_has_its_own_inventory_next_to_it() {
    let program = shop();
    let inventory_of =
        |program: &str| fs::read_to_string(format!("{program}.advisory.json")).unwrap();
    let service = program.replace("shop", "booking-service");
    assert_eq!(inventory_of(&service), inventory());
    assert!(!inventory_of(&program).contains("booking-service"));
    let library = program.replace("shop", "libledger.rlib");
    assert!(inventory_of(&library).contains("Settlement"));
    // Dependencies get none.
    let deps = fs::read_dir(Path::new(&program).with_file_name("deps")).unwrap();
    let names = deps.map(|file| file.unwrap().file_name().into_string().unwrap());
    let written: Vec<String> = names
        .filter(|name| name.ends_with(".advisory.json"))
        .collect();
    assert_eq!(written, [""; 0]);
}
