//! The packages that a registry gets: what builds and documents the crate, its metadata, and
//! nothing else.

use crate::pages::read;
use crate::workspace::{PUBLISHED, cargo, root};
use advisory_pattern::Derivation;
use std::path::PathBuf;

/// The registry's categories that fit; it refuses unknown ones.
const CATEGORIES: [&str; 5] = [
    "asynchronous",
    "concurrency",
    "database",
    "development-tools::cargo-plugins",
    "parser-implementations",
];

/// What the workspace's manifest says once for all packages.
const INHERITED: [&str; 7] = [
    "version",
    "edition",
    "rust-version",
    "license",
    "authors",
    "homepage",
    "repository",
];

fn listed(package: &str) -> Vec<String> {
    let list = cargo(&["package", "--list", "--allow-dirty", "-p", package]);
    list.lines().map(|line| line.replace('\\', "/")).collect()
}

fn manifest(package: &str) -> String {
    let path = root().join(package).join("Cargo.toml");
    std::fs::read_to_string(path).expect("a manifest")
}

/// The value of `name` among the lines of `[package]`.
fn field<'m>(manifest: &'m str, name: &str) -> Option<&'m str> {
    let (package, _) = manifest.split_once("\n[").expect("more than a package");
    let mut fields = package
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .filter(|(field, _)| *field == name);
    fields.next().map(|(_, value)| value)
}

/// The texts in a list of texts, or a single one.
fn texts(value: &str) -> Vec<&str> {
    value.split('"').skip(1).step_by(2).collect()
}

#[test]
fn exactly_the_crates_without_publish_false_are_published() {
    let workspace = manifest(".");
    let members = workspace
        .lines()
        .find_map(|line| line.strip_prefix("members = "));
    let mut published = Vec::new();
    for member in texts(members.expect("a line of members")) {
        match member.strip_suffix("/*") {
            None => published.push(member.to_owned()),
            Some(folder) => {
                for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
                    let name = entry.expect("an entry").file_name();
                    published.push(format!("{folder}/{}", name.to_string_lossy()));
                }
            }
        }
    }
    published.retain(|member| {
        let has_manifest = root().join(member).join("Cargo.toml").exists();
        has_manifest && field(&manifest(member), "publish") != Some("false")
    });
    assert_eq!(published, PUBLISHED);
}

#[test]
fn each_manifest_says_what_a_registry_shows() {
    for package in PUBLISHED {
        let manifest = manifest(package);
        let said = |name: &str| {
            field(&manifest, name).unwrap_or_else(|| panic!("{package} has no `{name}`"))
        };
        for inherited in INHERITED {
            assert_eq!(said(&format!("{inherited}.workspace")), "true", "{package}");
        }
        assert_eq!(said("readme"), "\"README.md\"", "{package}");
        assert!(said("description").len() > 20, "{package}");
        assert!(
            said("documentation").contains("https://docs.rs/"),
            "{package}"
        );
        let keywords = texts(said("keywords"));
        assert!((1..=5).contains(&keywords.len()), "{package}: {keywords:?}");
        for keyword in keywords {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            assert!(
                keyword.len() <= 20 && keyword.bytes().all(is_plain),
                "{keyword}"
            );
        }
        let categories = texts(said("categories"));
        assert!((1..=5).contains(&categories.len()), "{package}");
        for category in categories {
            assert!(CATEGORIES.contains(&category), "{package}: {category}");
        }
        let is_library = root().join(package).join("src/lib.rs").exists();
        let all_features = "[package.metadata.docs.rs]\nall-features = true\n";
        assert_eq!(manifest.contains(all_features), is_library, "{package}");
    }
}

#[test]
fn a_package_contains_what_builds_and_documents_it_only() {
    for package in PUBLISHED {
        let mut expected = [
            ".cargo_vcs_info.json",
            "Cargo.lock",
            "Cargo.toml",
            "Cargo.toml.orig",
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
        ]
        .map(str::to_owned)
        .to_vec();
        for (folder, kind) in [
            ("src", "rs"),
            ("src", "css"),
            ("src", "sql"),
            ("docs", "md"),
            ("migrations", "sql"),
        ] {
            files_below(package, folder, kind, &mut expected);
        }
        let mut listed = listed(package);
        // Only inside a repository.
        if !listed.contains(&expected[0]) {
            expected.remove(0);
        }
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected, "{package}");
    }
}

/// The files of one kind in a folder of the package; it must contain no others.
fn files_below(package: &str, folder: &str, kind: &str, files: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(root().join(package).join(folder)) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = format!("{folder}/{name}");
        if path.is_dir() {
            files_below(package, &name, kind, files);
        } else if path.extension().is_some_and(|found| found == kind) {
            files.push(name);
        }
    }
}

#[test]
fn a_packages_licences_and_links_are_valid() {
    for package in PUBLISHED {
        let read = |path: PathBuf| std::fs::read_to_string(path).expect("a text");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let own = read(root().join(package).join(licence));
            assert_eq!(own, read(root().join(licence)), "{package}: {licence}");
        }
        let page = read(root().join(package).join("README.md"));
        let listed = listed(package);
        let targets = page.split("](").skip(1);
        for (target, _) in targets.filter_map(|rest| rest.split_once(')')) {
            // A registry resolves these in the repository, beside the package.
            let is_beside = target.starts_with("../") && root().join(package).join(target).exists();
            let is_there = is_beside || target.starts_with("https://") || target.starts_with('#');
            assert!(
                is_there || listed.iter().any(|file| file == target),
                "{package}: {target}"
            );
        }
    }
}

/// Clippy reads it from the manifests, too.
#[test]
fn the_oldest_rust_is_the_same_on_every_page() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace's");
    let after = manifest.split_once("\nrust-version = \"");
    let oldest = after.and_then(|(_, after)| after.split('"').next());
    let oldest = oldest.expect("the oldest version");
    let pages = [
        "README.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "docs/stability.md",
        "advisory-pattern/README.md",
        "advisory-derive/README.md",
        "advisory-runtime/README.md",
        "advisory-runtime/src/lib.rs",
        "cargo-advisory/README.md",
    ];
    for page in pages {
        let text = std::fs::read_to_string(root().join(page)).expect(page);
        let mut versions = text
            .split("Rust 1.")
            .skip(1)
            .chain(text.split("minimum Rust version is 1.").skip(1));
        let stated = versions.next().expect(page);
        for version in versions.chain([stated]) {
            let minor = version.split(|c: char| !c.is_ascii_digit()).next();
            let version = format!("1.{}", minor.unwrap_or_default());
            assert_eq!(version, oldest, "{page}");
        }
    }
}

/// A feature that is not checked alone can miss a dependency, and nobody finds one that is not
/// documented.
#[test]
fn each_feature_of_the_runtime_is_documented_and_checked() {
    let manifest = manifest("advisory-runtime");
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let (features, _) = features.split_once("\n[").expect("more sections");
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let checked = read("scripts/feature-combinations");
    let checked: Vec<&str> = checked.split([' ', ',', '\n']).collect();
    let documented = read("advisory-runtime/src/lib.rs");
    let lists = ["README.md", "advisory-runtime/README.md"].map(|path| (path, read(path)));
    let mut count = 0;
    for (feature, _) in features.lines().filter_map(|line| line.split_once(" = ")) {
        if feature == "default" {
            continue;
        }
        count += 1;
        assert!(checked.contains(&feature), "{feature} is not checked");
        let row = format!("`{feature}`");
        let mut rows = documented.lines().filter(|line| line.starts_with("//! | "));
        assert!(
            rows.any(|line| line.contains(&row)),
            "{feature} has no row in `lib.rs`"
        );
        for (path, page) in &lists {
            let is_added = |line: &str| line.starts_with("cargo add") && line.contains(feature);
            let is_listed = page.contains(&row) || page.lines().any(is_added);
            assert!(is_listed, "{feature} is not in {path}");
        }
    }
    assert!(count > 10);
}

#[test]
fn each_derivation_is_on_the_pages_that_list_them() {
    let pages = [
        "advisory-derive/src/lib.rs",
        "advisory-runtime/docs/keys.md",
        "advisory-runtime/docs/moving.md",
    ];
    for page in pages {
        let text = read(&root().join(page));
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        for derivation in Derivation::ALL {
            let name = derivation.name();
            assert!(words.contains(&name), "{page} does not name `{name}`");
        }
    }
}
