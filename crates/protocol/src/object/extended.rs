//! Numbers with which `INCRBYFLOAT` counts.
//!
//! Redis adds in its platform's `long double`; on x86-64 that has 64 bits of mantissa, and 0.1 + 0.2 is
//! answered as 0.3, which a 64-bit float cannot. All replicas must agree on every digit, so the arithmetic is
//! done here, in integers, on every platform alike.

use minicbor::{Decode, Encode};
use std::cmp::Ordering;
use std::fmt::{self, Write as _};

/// A number: its mantissa times two to the power of its exponent. Not zero, the mantissa's highest bit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Extended {
    #[n(0)]
    negative: bool,
    #[n(1)]
    mantissa: u64,
    #[n(2)]
    exponent: i16,
}

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self { negative: false, mantissa: 0, exponent: 0 };

    /// The exponent of the largest numbers, below 2 to the power of 16384.
    const EXPONENT_MAX: i64 = 16_384 - 64;
    /// The exponent of the smallest normal numbers.
    const EXPONENT_MIN: i64 = -16_382 - 63;
    /// Redis's limit on the length of a number.
    const TEXT_MAX: usize = 5 * 1024;
    /// Digits that are written after the point.
    const DECIMALS: usize = 17;

    /// Reads a decimal number, with or without an exponent, to the nearest that can be held. `None` if it is
    /// none, or too large or too small to be held.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= Self::TEXT_MAX {
            return None;
        }
        let (negative, text) = split_sign(text);
        let (number, power) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], decimal_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match number.iter().position(|byte| *byte == b'.') {
            Some(at) => (&number[..at], &number[at + 1..]),
            None => (number, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut digits = Natural::default();
        for digit in whole.iter().chain(fraction) {
            digits.multiply_add(10, u32::from(digit.is_ascii_digit().then(|| digit - b'0')?));
        }
        if digits.is_zero() {
            return Some(Self { negative, ..Self::ZERO });
        }
        let power = power - fraction.len() as i64;
        // Far outside of what can be held, whatever the digits: do not compute it.
        if !(-20_000..=5_000).contains(&power) {
            return None;
        }
        let mut divisor = Natural::from(1);
        let scaled = if power < 0 { &mut divisor } else { &mut digits };
        for _ in 0..power.abs() {
            scaled.multiply_add(10, 0);
        }
        let (mantissa, exponent) = divide(digits, divisor);
        Self::checked(negative, mantissa, exponent)
    }

    /// The sum, rounded to nearest, ties to even. `None` if it is too large to be held.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        let (large, small) = if (self.mantissa != 0, self.exponent, self.mantissa)
            < (other.mantissa != 0, other.exponent, other.mantissa)
        {
            (other, self)
        } else {
            (self, other)
        };
        if small.mantissa == 0 {
            return Some(large);
        }
        // 62 bits to the right of the larger one's hold the smaller exactly, or so far away that only whether
        // there is anything counts: the lowest bit stands for all that was shifted out.
        let shift = (i32::from(large.exponent) - i32::from(small.exponent)).unsigned_abs();
        let wide = u128::from(small.mantissa) << 62;
        let aligned = wide.checked_shr(shift).unwrap_or(0);
        let aligned = aligned | u128::from(aligned.checked_shl(shift).unwrap_or(0) != wide);
        let wide = u128::from(large.mantissa) << 62;
        let sum = if large.negative == small.negative { wide + aligned } else { wide.abs_diff(aligned) };
        if sum == 0 {
            return Some(Self::ZERO);
        }
        let excess = 64 - i64::from(sum.leading_zeros());
        let (mantissa, carry) =
            if excess > 0 { round(sum, excess as u32) } else { ((sum as u64) << -excess, 0) };
        Self::checked(large.negative, mantissa, i64::from(large.exponent) - 62 + excess + carry)
    }

    fn checked(negative: bool, mantissa: u64, exponent: i64) -> Option<Self> {
        let range = Self::EXPONENT_MIN..=Self::EXPONENT_MAX;
        range.contains(&exponent).then_some(Self { negative, mantissa, exponent: exponent as i16 })
    }
}

/// As C's `%.17Lf`, without zeros at the end: what Redis writes.
impl fmt::Display for Extended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = if self.exponent >= 0 {
            let mut whole = Natural::from(self.mantissa);
            whole.shift_left(self.exponent.unsigned_abs().into());
            let mut digits = whole.into_decimal();
            digits.push_str(&"0".repeat(Self::DECIMALS));
            digits
        } else {
            let scaled = u128::from(self.mantissa) * 10_u128.pow(Self::DECIMALS as u32);
            let shift = u32::from(self.exponent.unsigned_abs());
            // Beyond 121 bits nothing is left to round.
            let rounded = if shift > 125 { 0 } else { half_even(scaled, shift) };
            format!("{rounded:0width$}", width = Self::DECIMALS + 1)
        };
        digits.insert(digits.len() - Self::DECIMALS, '.');
        let text = digits.trim_end_matches('0').trim_end_matches('.');
        let text = if text.is_empty() { "0" } else { text };
        if self.negative && text != "0" {
            f.write_str("-")?;
        }
        f.write_str(text)
    }
}

/// Whether there is a minus, and what follows the sign.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [sign @ (b'-' | b'+'), rest @ ..] => (*sign == b'-', rest),
        unsigned => (false, unsigned),
    }
}

/// The part after the `e`.
fn decimal_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        // Capped: more is out of range in any case.
        value = (value * 10 + i64::from(digit)).min(1_000_000);
    }
    Some(if negative { -value } else { value })
}

/// `dividend / divisor` as a mantissa with its highest bit set and an exponent, rounded. Neither is zero.
fn divide(mut dividend: Natural, mut divisor: Natural) -> (u64, i64) {
    // Align them, so that the quotient lies in 1..2.
    let mut exponent = dividend.bits() as i64 - divisor.bits() as i64;
    if exponent < 0 {
        dividend.shift_left(exponent.unsigned_abs() as usize);
    } else {
        divisor.shift_left(exponent.unsigned_abs() as usize);
    }
    if dividend.compare(&divisor) == Ordering::Less {
        dividend.shift_left(1);
        exponent -= 1;
    }
    let mut mantissa: u64 = 0;
    for _ in 0..64 {
        let bit = dividend.compare(&divisor) != Ordering::Less;
        if bit {
            dividend.subtract(&divisor);
        }
        mantissa = mantissa << 1 | u64::from(bit);
        dividend.shift_left(1);
    }
    // What is left is twice the remainder.
    let up = match dividend.compare(&divisor) {
        Ordering::Less => false,
        Ordering::Equal => mantissa & 1 == 1,
        Ordering::Greater => true,
    };
    match mantissa.checked_add(u64::from(up)) {
        Some(mantissa) => (mantissa, exponent - 63),
        None => (1 << 63, exponent - 62),
    }
}

/// Drops the lowest `excess` bits of a number that then has 64; the second is 1 if rounding up added a bit.
fn round(number: u128, excess: u32) -> (u64, i64) {
    let rounded = half_even(number, excess);
    if rounded >> 64 == 0 { (rounded as u64, 0) } else { ((rounded >> 1) as u64, 1) }
}

/// `number / 2^shift`, rounded to nearest, ties to even; `shift` is in 1..=125.
fn half_even(number: u128, shift: u32) -> u128 {
    let (kept, rest, half) = (number >> shift, number & ((1 << shift) - 1), 1 << (shift - 1));
    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
}

/// A natural number of any size, in 32-bit digits, the lowest first, the highest not zero.
#[derive(Default)]
struct Natural(Vec<u32>);

impl From<u64> for Natural {
    fn from(number: u64) -> Self {
        let mut natural = Self(vec![number as u32, (number >> 32) as u32]);
        natural.trim();
        natural
    }
}

impl Natural {
    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: usize) {
        let inside = bits % 32;
        if inside > 0 {
            let mut carry = 0;
            for digit in &mut self.0 {
                let wide = u64::from(*digit) << inside | carry;
                *digit = wide as u32;
                carry = wide >> 32;
            }
            self.0.push(carry as u32);
            self.trim();
        }
        self.0.splice(0..0, std::iter::repeat_n(0, bits / 32));
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let (once, first) = digit.overflowing_sub(other.0.get(index).copied().unwrap_or(0));
            let (twice, second) = once.overflowing_sub(u32::from(borrow));
            *digit = twice;
            borrow = first || second;
        }
        self.trim();
    }

    fn into_decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for digit in self.0.iter_mut().rev() {
                let wide = rest << 32 | u64::from(*digit);
                *digit = (wide / 1_000_000_000) as u32;
                rest = wide % 1_000_000_000;
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            // Writing to a string has no error.
            let _ = write!(text, "{group:09}");
        }
        text
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let parse = |text: &str| Extended::parse(text.as_bytes()).unwrap();
        parse(a).plus(parse(b)).unwrap().to_string()
    }

    #[test]
    fn sums_as_redis_writes_them() {
        // Answers of Redis 7.0.15 on x86-64.
        for (a, b, expected) in [
            ("10.5", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("0", "-0.0", "0"),
            ("1", "-1", "0"),
            ("3", "1.000000000000000005", "4.00000000000000001"),
            ("1e17", "0.1", "100000000000000000.1015625"),
            ("-1.5", "1.25", "-0.25"),
            ("0", "1e-18", "0"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            (".5", "5.", "5.5"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
        assert_eq!(sum("1e30", "0"), "1000000000000000000024696061952");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            "-",
            "e5",
            "1e",
            "1x",
            " 1",
            "1 ",
            "nan",
            ".",
            "--1",
            "1e5000",
            "1e-6000",
            "1e99999999999999999999",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
        assert!(Extended::parse(&[b'1'; 6_000]).is_none());
        assert_eq!(Extended::parse(b"0e99999999"), Some(Extended::ZERO));
        let largest = Extended::parse(b"1.18973149535723176502e4932").unwrap();
        assert_eq!(largest.to_string().len(), 4933);
        assert_eq!(largest.plus(largest), None);
    }

    /// Where a 64-bit float holds the number exactly, so does this, and the nearest float is found again.
    #[test]
    fn agrees_with_floats() {
        let mut random = rand_pcg::Pcg64::new(1, 2);
        for _ in 0..20_000 {
            let bits = rand::Rng::next_u64(&mut random);
            let float = f64::from_bits(bits & 0x800f_ffff_ffff_ffff | (0x3b0 + (bits >> 52 & 0x7f)) << 52);
            let exact = Extended::parse(format!("{float:.150}").as_bytes()).unwrap();
            assert_eq!(Extended::parse(format!("{float:.150e}").as_bytes()), Some(exact));
            assert_eq!(exact.negative, float < 0.0);
            assert_eq!(exact.mantissa, (float.to_bits() & 0xf_ffff_ffff_ffff | 1 << 52) << 11);
            let shown = format!("{float:.17}");
            let shown = shown.trim_end_matches('0').trim_end_matches('.');
            assert_eq!(exact.to_string(), if shown == "-0" { "0" } else { shown });
        }
    }
}
