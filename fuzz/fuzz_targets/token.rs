#![no_main]
#[path = "../properties.rs"]
#[expect(dead_code, reason = "each target tries its own property")]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::token(data));
