//! All lock sites are listed, in each format.

use std::fs;

use serde_json::Value;

use crate::programs::{
    advisory, assert_has, booking_service, inventory, run, run_alone, scratch, shop, words,
};

#[test]
fn the_table_is_plain_and_whole_when_piped() {
    let said = advisory(&["dump", "--artifact", &booking_service()]).exits(0);
    assert_eq!(said.out, include_str!("booking-service.txt"));
    assert_eq!(said.err, "");
}

#[test]
fn the_document_has_all_that_the_one_kept_by_hand_had() {
    let program = booking_service();
    let said = advisory(&["dump", "--format=markdown", "--artifact", &program]).exits(0);
    assert_eq!(said.out, include_str!("booking-service.md"));
}

#[test]
fn the_document_gives_the_odds_for_the_keys_asked_for() {
    let program = booking_service();
    for (keys, count, odds) in [
        ("0", "0", "none"),
        ("2", "2", "1 in 4,300,000,000"),
        ("77000", "77,000", "50 %"),
        (
            "18446744073709551615",
            "18,446,744,073,709,551,615",
            "100 %",
        ),
    ] {
        let line = format!("dump --format=markdown --artifact {program} --keys {keys}");
        let said = advisory(&words(&line));
        let row = format!("| `fnv1a32` | 2 | 32 | {odds} | 77,000 |");
        assert_has(&said.out, &row);
        let head = format!("Odds for {count} keys");
        assert_has(&said.out, &head);
    }
}

#[test]
fn json_has_every_member_of_the_schema() {
    let value: Value = serde_json::from_str(&inventory()).unwrap();
    assert_eq!(value["version"], 1);
    let sites = value["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 3);
    let page = include_str!("../../docs/json.md");
    for site in sites {
        for member in site.as_object().unwrap().keys() {
            assert_has(&page, &format!("`{member}`"));
        }
    }
    let create = &sites[0];
    assert_eq!(create["pattern"], "<tenant_id>:<date>");
    assert_eq!(
        create["keys"][0]["shaped"],
        "<tenant_id: text>:<date: text>"
    );
    assert_eq!(create["derivation"], "fnv1a32");
    assert_eq!(create["scope"], "xact");
    assert_eq!(create["function"], "create");
    assert_eq!(create["crate"], "booking-service");
    assert_eq!(create["file"], "src/booking_repository.rs");
    assert_eq!(create["line"], 11);
    let clean_up = &sites[2];
    assert_eq!(clean_up["name"], "idempotency-cleanup");
    assert_eq!(clean_up["number"], 42_424_242);
    assert_eq!(clean_up["key_space"], "bigint");
    assert_eq!(clean_up["derivation"], Value::Null);
}

#[test]
fn a_file_is_written_without_colours_in_a_new_folder() {
    let folder = scratch("a-new-folder");
    drop(fs::remove_dir_all(&folder));
    let to = format!("{folder}/dump.txt");
    let program = booking_service();
    let words = ["dump", "--artifact", &program, "-o", &to];
    let said = run(&words, &[("CLICOLOR_FORCE", "1")]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    assert_eq!(
        fs::read_to_string(to).unwrap(),
        include_str!("booking-service.txt")
    );
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_stays_as_it_was() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    let folder = scratch("a-full-disk");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    let (file, link) = (format!("{folder}/table.txt"), format!("{folder}/link"));
    fs::write(&file, "before").unwrap();
    symlink("table.txt", &link).unwrap();
    let program = booking_service();
    let dump = |limit: &str, to: &str| {
        // The shell ignores the signal, so its limit becomes an error of the write.
        let script = format!("trap '' 25; {limit} exec \"$0\" dump --artifact \"$1\" -o \"$2\"");
        let command = env!("CARGO_BIN_EXE_cargo-advisory");
        let output = Command::new("sh")
            .args(["-c", &script, command, &program, to])
            .output()
            .unwrap();
        (output.status.code(), output.stdout)
    };
    assert_eq!(dump("ulimit -f 0;", &link).0, Some(2));
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    assert_eq!(dump("", &link).0, Some(0));
    let table = include_str!("booking-service.txt");
    assert_eq!(fs::read_to_string(&file).unwrap(), table);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    // Next to this file no other can be created, except by root.
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let code = dump("", &link).0;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), table);
    let said = dump("", "/dev/stdout");
    assert_eq!(said, (Some(0), table.as_bytes().to_vec()));
}

#[test]
fn the_selection_is_built_and_its_crates_are_named() {
    shop();
    let said = run_alone(&["dump", "--package", "shop"]);
    let crates = "2 lock sites in 2 crates: bookings 1.4.0 (1), ledger 1.4.0 (1)";
    assert!(said.out.ends_with(&format!("{crates}\n")), "{}", said.out);
}

#[test]
fn several_artifacts_are_one_inventory() {
    let (service, shop) = (booking_service(), shop());
    let line = format!("dump --artifact {service} --artifact {shop} --artifact {shop}");
    let said = advisory(&words(&line));
    assert_has(&said.out, "5 lock sites in 3 crates");
}

#[test]
fn fat_lto_and_strip_leave_the_records() {
    shop();
    let profile = |setting: &str| format!("--config=profile.release.{setting}");
    let settings = ["lto='fat'", "strip=true", "panic='abort'"].map(profile);
    let mut words = vec!["dump", "--release", "--package=shop"];
    words.extend(settings.iter().map(String::as_str));
    let built = advisory(&words);
    assert_has(&built.out, "2 lock sites");
    // Also the program alone, without the libraries in between.
    let program = shop().replace("debug", "release");
    let said = advisory(&["dump", "--artifact", &program]);
    assert_eq!(said.out, built.out);
}

#[test]
fn a_program_without_locks_has_none() {
    // The command itself, which contains the parts of a record.
    let said = advisory(&["dump", "--artifact", env!("CARGO_BIN_EXE_cargo-advisory")]);
    let none = "no lock sites (a crate that the source never names is not linked)\n";
    assert_eq!(said.exits(0).out, none);
}
