//! Lists the files of `experiments/`, so that adding one needs no code.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("experiments");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let item = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        format!("({name:?}, include_str!({:?}))", path.to_string_lossy())
    };
    let items: Vec<String> = files.iter().map(item).collect();
    let target = Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("experiments.rs");
    fs::write(target, format!("[{}]", items.join(",\n")))
}
