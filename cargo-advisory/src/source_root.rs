//! The root of the checked repository and the folders of its crates, for the paths that a code host
//! shows.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The nearest folder with `.git`, and the folders of the workspace's packages.
pub(crate) struct SourceRoot {
    folder: PathBuf,
    /// By the package's name.
    packages: BTreeMap<String, PathBuf>,
    /// The `Cargo.toml` at which findings without a source line are reported.
    manifest: PathBuf,
}

/// A line of a file. A record or the user names the file.
pub(crate) enum SourceLine {
    /// The file is relative to the crate's manifest, or below `$OUT_DIR`, or empty in a slim
    /// inventory.
    Crate {
        krate: String,
        file: String,
        line: u32,
    },
    /// A document or an inventory, relative to the working directory.
    Document { file: PathBuf, line: usize },
}

/// A line that a code host can show: the path is relative to the root, with slashes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) path: String,
    pub(crate) line: u64,
}

impl SourceRoot {
    /// Asks cargo for the packages. Outside of a workspace there are none.
    pub(crate) fn find(manifest_path: Option<&str>) -> Self {
        let metadata = metadata(manifest_path).unwrap_or_default();
        let workspace = match metadata["workspace_root"].as_str() {
            Some(folder) => PathBuf::from(folder),
            None => env::current_dir().unwrap_or_default(),
        };
        let workspace = canonical(workspace);
        let mut above = workspace.ancestors();
        let root = above.find(|folder| folder.join(".git").exists());
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let folder = |package: &Value| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let folder = canonical(manifest.parent()?.to_owned());
            Some((package["name"].as_str()?.to_owned(), folder))
        };
        Self {
            packages: packages.filter_map(folder).collect(),
            manifest: workspace.join("Cargo.toml"),
            folder: root.unwrap_or(&workspace).to_owned(),
        }
    }

    pub(crate) fn manifest(&self) -> Located {
        let path = self.below(&self.manifest);
        let path = path.unwrap_or_else(|| "Cargo.toml".to_owned());
        Located { path, line: 1 }
    }

    /// `None` if the line is not below the root: in a dependency, in a file that a build script
    /// wrote, or of a record without a file.
    pub(crate) fn locate(&self, line: &SourceLine) -> Option<Located> {
        let (file, line) = match line {
            SourceLine::Document { file, line } => {
                let file = env::current_dir().unwrap_or_default().join(file);
                (file, u64::try_from(*line).unwrap_or(1))
            }
            SourceLine::Crate { file, .. } if file.is_empty() || file.starts_with("$OUT_DIR") => {
                return None;
            }
            SourceLine::Crate { krate, file, line } => {
                (self.packages.get(krate)?.join(file), u64::from(*line))
            }
        };
        let path = self.below(&canonical(file))?;
        // A record without a line has the number 0.
        let line = line.max(1);
        Some(Located { path, line })
    }

    fn below(&self, file: &Path) -> Option<String> {
        let path = file.strip_prefix(&self.folder).ok()?;
        Some(path.to_str()?.replace('\\', "/"))
    }
}

/// The path without symbolic links, so that it can be compared. A path that does not exist is
/// unchanged.
fn canonical(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

fn metadata(manifest_path: Option<&str>) -> Option<Value> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = manifest_path.map(|path| format!("--manifest-path={path}"));
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .args(manifest)
        .output()
        .ok()?;
    serde_json::from_slice(&output.stdout).ok()
}
