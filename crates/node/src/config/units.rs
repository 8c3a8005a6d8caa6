//! Durations and sizes as people write them.

use std::time::Duration;

/// Reads a duration with its unit: `250us`, `10ms`, `1.5s`, `2m`, `1h`.
///
/// # Errors
/// What is wrong with it, for a person to read.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let (number, unit) = split(text);
    let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let seconds = number.parse::<f64>().ok().zip(scale).map(|(number, scale)| number * scale);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| duration.as_secs() < 1 << 32)
        .ok_or_else(|| format!("'{text}' is no duration: write a number and us, ms, s, m or h, such as 10ms"))
}

/// Reads a number of bytes: `4096`, `64KiB`, `8MiB`, `2GiB`.
///
/// # Errors
/// What is wrong with it, for a person to read.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (number, unit) = split(text);
    let shift = units.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift);
    let bytes =
        number.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| {
        format!("'{text}' is no size: write bytes as a number, or with KiB, MiB or GiB, such as 8MiB")
    })
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2 m"), Ok(Duration::from_mins(2)));
        for wrong in ["10", "", "ms", "1.2.3s", "-1s", "10 parsecs", "99999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(bytes("8MiB"), Ok(8 << 20));
        assert_eq!(bytes("0"), Ok(0));
        for wrong in ["8MB", "", "1.5MiB", "-1", "99999999TiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
