use super::vint::{Vint, read_signed, read_unsigned};
use super::*;
use crate::notation::Reader;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use core::str::FromStr;

/// A value has this text, and the text that value.
fn has_text<T: Display + FromStr<Err = ValueError> + PartialEq + Debug>(value: &T, text: &str) {
    assert_eq!(value.to_string(), text);
    assert_eq!(text.parse::<T>().as_ref(), Ok(value), "{text}");
}

fn refused<T: FromStr<Err = ValueError> + Debug>(texts: &[&str]) {
    for text in texts {
        text.parse::<T>().expect_err(text);
    }
}

#[test]
fn integers_of_variable_length_return_as_they_were() {
    for (number, bytes) in [
        (0, &[0][..]),
        (0x7f, &[0x7f]),
        (0x80, &[0x80, 0x80]),
        (0x3fff, &[0xbf, 0xff]),
        (0x4000, &[0xc0, 0x40, 0x00]),
        (0x00ff_ffff_ffff_ffff, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (0x0100_0000_0000_0000, &[0xff, 1, 0, 0, 0, 0, 0, 0, 0]),
        (u64::MAX, &[0xff; 9]),
    ] {
        assert_eq!(Vint::unsigned(number).as_slice(), bytes, "{number:#x}");
    }
    for shift in 0..64 {
        for number in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            let bytes = Vint::unsigned(number);
            let mut reader = Reader::new(bytes.as_slice(), 0);
            assert_eq!((read_unsigned(&mut reader), reader.rest.len()), (Some(number), 0));
            for end in 0..bytes.as_slice().len() {
                assert_eq!(read_unsigned(&mut Reader::new(&bytes.as_slice()[..end], 0)), None);
            }
            for number in [number.cast_signed(), number.cast_signed().wrapping_neg()] {
                assert_eq!(read_signed(&mut Reader::new(Vint::signed(number).as_slice(), 0)), Some(number));
            }
        }
    }
    assert_eq!([0, -1, 1, -2].map(|number| Vint::signed(number).as_slice()[0]), [0, 1, 2, 3]);
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (days, text) in [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (11_016, "2000-02-29"),
        (19_782, "2024-02-29"),
        (-719_528, "0000-01-01"),
        (-719_529, "-0001-12-31"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (i32::MAX, "+5881580-07-11"),
        (i32::MIN, "-5877641-06-23"),
    ] {
        has_text(&Date::from_days(days), text);
        let (year, month, day) = Date::from_days(days).ymd();
        assert_eq!(Date::from_ymd(year, month, day), Some(Date::from_days(days)), "{text}");
    }
    // Every day of more than 400 years follows the one before it.
    let mut last = Date::from_days(-800_000).ymd();
    for days in -799_999..-650_000 {
        let (year, month, day) = Date::from_days(days).ymd();
        let follows = match day {
            1 if month == 1 => last == (year - 1, 12, 31),
            1 => last.0 == year && last.1 == month - 1 && last.2 >= 28,
            _ => last == (year, month, day - 1),
        };
        assert!(follows, "{last:?} {year}-{month}-{day}");
        last = (year, month, day);
        assert_eq!(Date::from_ymd(year, month, day), Some(Date::from_days(days)));
    }
    assert_eq!("10000-01-01".parse(), Ok(Date::from_days(2_932_897)));
    refused::<Date>(&[
        "",
        "1970",
        "1970-1-1",
        "1970-01-01 ",
        "970-01-01",
        "1970-00-01",
        "1970-13-01",
        "1970-01-00",
        "1970-01-32",
        "2023-02-29",
        "1900-02-29",
        "1970-01-1x",
        "1970-01-€",
        "1970/01/01",
        "+5881580-07-12",
        "-5877641-06-22",
        "9999999999-01-01",
        "2024-255-01",
    ]);
    assert_eq!(Date::from_ymd(i32::MAX, 1, 1), None);
    assert_eq!(Date::from_ymd(i32::MIN, 1, 1), None);
    assert_eq!(Date::from_ymd(1970, 255, 255), None);
    assert_eq!(Date::read(&[0x80, 0, 0, 1]), Some(Date::from_days(1)));
    assert_eq!(Date::read(&[0; 4]), Some(Date::from_days(i32::MIN)));
    assert_eq!(Date::read(&[0; 5]), None);
}

#[test]
fn times_are_within_a_day() {
    has_text(&Time::default(), "00:00:00.000000000");
    has_text(&Time::from_ns(86_399_999_999_999).expect("a time"), "23:59:59.999999999");
    assert_eq!(Time::from_ns(86_400_000_000_000), None);
    for (text, ns) in [("00:00:01", 1_000_000_000), ("00:01:00.5", 60_500_000_000), ("00:00:00.0000000010", 1)] {
        assert_eq!(text.parse::<Time>().map(Time::ns), Ok(ns), "{text}");
    }
    refused::<Time>(&[
        "",
        "1:00:00",
        "24:00:00",
        "00:60:00",
        "00:00:60",
        "00:00",
        "00:00:00.",
        "00:00:00.0000000001",
        "00:00:00Z",
        "+0:00:00",
        "00:00:0é",
    ]);
    assert_eq!(Time::read(&86_399_999_999_999_u64.to_be_bytes()).map(Time::ns), Some(86_399_999_999_999));
    assert_eq!(Time::read(&86_400_000_000_000_u64.to_be_bytes()), None);
    assert_eq!(Time::read(&[0xff; 8]), None);
}

#[test]
fn timestamps_have_a_text_in_all_of_their_range() {
    for (ms, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_709_209_800_250, "2024-02-29T12:30:00.250Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (i64::MAX, "+292278994-08-17T07:12:55.807Z"),
        (i64::MIN, "-292275055-05-16T16:47:04.192Z"),
    ] {
        has_text(&Timestamp::from_ms(ms), text);
    }
    for text in [
        "2024-02-29T12:30:00.25Z",
        "2024-02-29t12:30:00.2500000000z",
        "2024-02-29 12:30:00.250+00:00",
        "2024-02-29T14:00:00.250+01:30",
        "2024-02-29T11:00:00.250-0130",
        "2024-02-28T12:31:00.250-23:59",
    ] {
        assert_eq!(text.parse(), Ok(Timestamp::from_ms(1_709_209_800_250)), "{text}");
    }
    let error = |text: &str| text.parse::<Timestamp>().expect_err(text).to_string();
    for text in ["2024-02-29T12:30:00.2501Z", "2024-02-29T12:30:00.000000001Z"] {
        assert_eq!(error(text), "a timestamp with fractions of milliseconds");
    }
    assert_eq!(error("+292278994-08-17T07:12:55.808Z"), "a timestamp out of range");
    assert_eq!(error("-292275055-05-16T16:47:04.192+00:01"), "a timestamp out of range");
    refused::<Timestamp>(&[
        "",
        "2024-02-29",
        "2024-02-29T12:30:00",
        "2024-02-29T12:30Z",
        "2024-02-29T12:30:60Z",
        "2024-02-30T12:30:00Z",
        "2024-02-29T12:30:00.Z",
        "2024-02-29T12:30:00Zx",
        "2024-02-29T12:30:00+24:00",
        "2024-02-29T12:30:00+01:60",
        "1709209800250",
        "2024-02-29T12:30:00é",
    ]);
    assert_eq!(Timestamp::read(&(-5_i64).to_be_bytes()), Some(Timestamp::from_ms(-5)));
    assert_eq!(Timestamp::read(&[0; 7]), None);
}

#[test]
fn durations_have_parts_of_one_sign() {
    let new = |months, days, ns| Duration::new(months, days, ns).expect("one sign");
    for (value, text) in [
        (new(0, 0, 0), "0s"),
        (new(14, 3, 14_706_007_008_009), "1y2mo3d4h5m6s7ms8us9ns"),
        (new(-14, -3, -14_706_007_008_009), "-1y2mo3d4h5m6s7ms8us9ns"),
        (new(0, 400, 0), "400d"),
        (new(0, 0, 360_000_000_000_000), "100h"),
        (new(i32::MAX, i32::MAX, i64::MAX), "178956970y7mo2147483647d2562047h47m16s854ms775us807ns"),
        (new(i32::MIN, i32::MIN, i64::MIN), "-178956970y8mo2147483648d2562047h47m16s854ms775us808ns"),
    ] {
        has_text(&value, text);
        assert_eq!(Duration::read(&value.to_bytes()), Some(value), "{text}");
    }
    assert_eq!("2W1D".parse(), Ok(new(0, 15, 0)));
    assert_eq!("1µs".parse(), Ok(new(0, 0, 1000)));
    assert_eq!(new(1, 2, 3).to_bytes(), [2, 4, 6]);
    assert_eq!(Duration::new(1, -1, 0), None);
    assert_eq!(Duration::new(0, 1, -1), None);
    refused::<Duration>(&[
        "",
        "-",
        "1",
        "d",
        "1d1y",
        "1d1d",
        "1x",
        "1.5d",
        "--1d",
        "1d ",
        " 1d",
        "-1d-1h",
        "178956971y",
        "2147483648d",
        "2562048h",
        "99999999999999999999d",
        "1d99999999999999999999ns",
        "1é",
    ]);
    for cell in [&[][..], &[0], &[0, 0], &[0, 0, 0, 0], &[1, 2, 0], &[0xf1, 0, 0, 0, 0, 0, 0], &[0xff; 8]] {
        assert_eq!(Duration::read(cell), None, "{cell:?}");
    }
    // Months above 32 bits.
    let cell = [Vint::signed(1 << 31).as_slice(), &[0, 0]].concat();
    assert_eq!(Duration::read(&cell), None);
}

#[test]
fn varints_have_any_size() {
    for (text, bytes) in [
        ("0", &[0][..]),
        ("127", &[0x7f]),
        ("128", &[0, 0x80]),
        ("-128", &[0x80]),
        ("-129", &[0xff, 0x7f]),
        ("-1", &[0xff]),
        ("170141183460469231731687303715884105727", &[&[0x7f][..], &[0xff; 15]].concat()),
        ("170141183460469231731687303715884105728", &[&[0, 0x80][..], &[0; 15]].concat()),
        ("-170141183460469231731687303715884105728", &[&[0x80][..], &[0; 15]].concat()),
        ("-170141183460469231731687303715884105729", &[&[0xff, 0x7f][..], &[0xff; 15]].concat()),
        ("340282366920938463463374607431768211455", &[&[0][..], &[0xff; 16]].concat()),
        ("340282366920938463463374607431768211456", &[&[1][..], &[0; 16]].concat()),
        ("-340282366920938463463374607431768211457", &[&[0xfe][..], &[0xff; 16]].concat()),
    ] {
        let number = Varint::read(bytes).expect("a number");
        has_text(&number, text);
        assert_eq!(number.bytes(), bytes);
        let sign = if text.starts_with('-') { 0xff } else { 0 };
        assert_eq!(Varint::read(&[&[sign; 3], bytes].concat()), Some(number), "the shortest form of {text}");
    }
    assert_eq!("+007".parse(), Ok(Varint::from(7)));
    assert_eq!("-0".parse(), Ok(Varint::default()));
    assert_eq!(Varint::read(&[]), None);
    refused::<Varint>(&["", "-", "+", "+-1", "--1", "1.0", "1e3", " 1", "1 ", "0x1", "٣"]);
    // Powers of two and of ten, and their neighbours, are in order.
    let texts = (1..600).flat_map(|zeros| {
        let zeros = "0".repeat(zeros);
        [format!("1{zeros}"), format!("-1{zeros}"), format!("9{zeros}7"), format!("-5{zeros}3")]
    });
    let mut numbers: Vec<Varint> = texts
        .map(|text| {
            let number = text.parse::<Varint>().expect("a number");
            has_text(&number, &text);
            number
        })
        .collect();
    numbers.sort();
    let key = |number: &Varint| {
        let text = number.to_string();
        let length = i64::try_from(text.len()).expect("short");
        if text.starts_with('-') {
            (-length, text.bytes().map(|one| 255 - one).collect())
        } else {
            (length, text.into_bytes())
        }
    };
    assert!(numbers.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
}

#[test]
fn long_varints_cost_no_more_than_their_length() {
    let largest = Varint::read(&[&[0x7f][..], &[0xff; VARINT_DECIMAL_BYTES_MAX - 1]].concat()).expect("a number");
    let text = largest.to_string();
    assert_eq!((text.len(), text.parse()), (2466, Ok(largest)));
    let least = Varint::read(&[&[0x80][..], &[0; VARINT_DECIMAL_BYTES_MAX - 1]].concat()).expect("a number");
    has_text(&least, &least.to_string());
    assert!(text.replacen(|_| true, "9", 1).parse::<Varint>().is_err(), "more bytes, with as many digits");
    assert!("1".repeat(2467).parse::<Varint>().is_err());
    assert!("1".repeat(10_000_000).parse::<Varint>().is_err());
    let longer = Varint::read(&[&[0x12][..], &[0; VARINT_DECIMAL_BYTES_MAX]].concat()).expect("a number");
    assert_eq!(longer.to_string(), format!("0x12{}", "00".repeat(VARINT_DECIMAL_BYTES_MAX)));
    let longer = Varint::read(&[&[0x80][..], &[0; VARINT_DECIMAL_BYTES_MAX]].concat()).expect("a number");
    assert_eq!(longer.to_string(), format!("-0x80{}", "00".repeat(VARINT_DECIMAL_BYTES_MAX)));
    let huge = Varint::read(&vec![0x55; 10_000_000]).expect("a number");
    assert_eq!(huge.to_string().len(), 20_000_002);
    let decimal = Decimal::new(longer, -3).to_string();
    assert!(decimal.starts_with("-0x80") && decimal.ends_with("00*10^3"), "{decimal}");
}

#[test]
fn varints_convert_to_integers_of_rust() {
    macro_rules! kept {
        ($($type:ty)*) => {$(
            for number in [<$type>::MIN, <$type>::MAX, 0, 1, <$type>::MAX / 3] {
                let wide = Varint::from(number);
                assert_eq!(<$type>::try_from(&wide), Ok(number));
                has_text(&wide, &number.to_string());
            }
            let above: Varint = (<$type>::MAX.to_string() + "0").parse().expect("a number");
            assert!(<$type>::try_from(above).is_err());
        )*};
    }
    kept!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);
    let error = u8::try_from(Varint::from(-1)).expect_err("negative");
    assert_eq!(error.to_string(), "a varint out of the range of u8");
    assert!(u128::try_from(Varint::from(-1)).is_err());
}

#[test]
fn decimals_keep_their_scale() {
    for (unscaled, scale, text) in [
        (0, 0, "0"),
        (0, 2, "0.00"),
        (-1230, 2, "-12.30"),
        (5, 1, "0.5"),
        (-5, 3, "-0.005"),
        (123, 3, "0.123"),
        (1, 6, "0.000001"),
        (1, 7, "1E-7"),
        (123, 9, "1.23E-7"),
        (123, -3, "1.23E+5"),
        (1, -1, "1E+1"),
        (7, i32::MAX, "7E-2147483647"),
        (-77, i32::MIN, "-7.7E+2147483649"),
    ] {
        let number = Decimal::new(unscaled, scale);
        has_text(&number, text);
        assert_eq!(Decimal::read(&number.to_bytes()), Some(number));
    }
    for (text, unscaled, scale) in [("1.", 1, 0), (".5", 5, 1), ("+1e5", 1, -5), ("1.50E-2", 150, 4), ("00.0", 0, 1)] {
        assert_eq!(text.parse(), Ok(Decimal::new(unscaled, scale)), "{text}");
    }
    assert_ne!(Decimal::new(10, 1), Decimal::new(100, 2));
    refused::<Decimal>(&[
        "",
        ".",
        "-",
        "-.",
        "e5",
        "1e",
        "1e1.5",
        "1.2.3",
        "1,2",
        "0x1",
        " 1",
        "1 ",
        "1e2147483649",
        "1E-2147483648",
        "1e9223372036854775808",
        "NaN",
        "inf",
        "1é",
    ]);
    assert!("1".repeat(3000).parse::<Decimal>().is_err());
    assert_eq!(Decimal::new(1, 2).to_bytes(), [0, 0, 0, 2, 1]);
    for cell in [&[][..], &[0, 0, 0], &[0, 0, 0, 2]] {
        assert_eq!(Decimal::read(cell), None);
    }
    assert_eq!(Decimal::from(Varint::from(5)), Decimal::new(5, 0));
}

#[test]
fn uuids_have_the_usual_text_and_a_time() {
    let uuid = Uuid::from_bytes(core::array::from_fn(|place| u8::try_from(place * 16 + 1).expect("small")));
    has_text(&uuid, "01112131-4151-6171-8191-a1b1c1d1e1f1");
    assert_eq!("01112131415161718191-1b1c1d1e1f1".parse::<Uuid>().ok(), None);
    assert_eq!("01112131415161718191A1B1C1D1E1F1".parse(), Ok(uuid));
    assert_eq!((uuid.version(), uuid.timestamp()), (6, None));
    // RFC 9562, the example of version 1.
    let uuid: Uuid = "C232AB00-9414-11EC-B3C8-9F6BDECED846".parse().expect("a UUID");
    assert_eq!((uuid.version(), uuid.timestamp()), (1, "2022-02-22T19:22:22Z".parse().ok()));
    assert_eq!(Uuid::read(&uuid.bytes()), Some(uuid));
    assert_eq!(Uuid::read(&[0; 15]), None);
    assert_eq!(<[u8; 16]>::from(Uuid::from([7; 16])), [7; 16]);
}

#[test]
fn other_values_have_their_parts() {
    let value = CustomValue::new("of.some.Class", vec![0, 255]);
    assert_eq!((value.class(), value.bytes(), value.to_string()), ("of.some.Class", &[0, 255][..], "0x00ff".into()));
    assert_eq!(value.into_bytes(), [0, 255]);
    assert_eq!(MaybeEmpty::Value(1).value(), Some(1));
    assert_eq!(MaybeEmpty::<i32>::default().value(), None);
    assert_eq!(String::new().parse::<Time>().expect_err("empty").to_string(), "no time of the form 12:30:00.250000000");
}

#[cfg(feature = "chrono")]
#[test]
fn chrono_converts() {
    use ::chrono::{DateTime, NaiveDate, NaiveTime, Utc};
    for text in ["2024-02-29T12:30:00.250Z", "1969-12-31T23:59:59.999Z", "-0044-03-15T00:00:00.000Z"] {
        let here: Timestamp = text.parse().expect("a timestamp");
        let there: DateTime<Utc> = here.try_into().expect("in range");
        assert_eq!((there, here), (text.parse::<DateTime<Utc>>().expect("a time"), there.into()));
        let date: Date = text.split('T').next().expect("a date").parse().expect("a date");
        let there = NaiveDate::try_from(date).expect("in range");
        assert_eq!((there, date), (text.parse::<DateTime<Utc>>().expect("a time").date_naive(), there.into()));
    }
    let before = DateTime::<Utc>::from_timestamp(-1, 999_999_999).expect("a time");
    assert_eq!(Timestamp::from(before), Timestamp::from_ms(-1), "rounded down");
    for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
        let there = DateTime::<Utc>::try_from(Timestamp::from(extreme)).expect("in range");
        assert_eq!(there.timestamp_millis(), extreme.timestamp_millis());
        assert_eq!(Date::from(extreme.date_naive()).to_string(), extreme.date_naive().to_string());
    }
    for extreme in [i64::MIN, i64::MAX] {
        assert!(DateTime::<Utc>::try_from(Timestamp::from_ms(extreme)).is_err());
    }
    for extreme in [i32::MIN, i32::MAX] {
        assert!(NaiveDate::try_from(Date::from_days(extreme)).is_err());
    }
    for ns in [0, 86_399_999_999_999, 43_200_000_000_001] {
        let here = Time::from_ns(ns).expect("a time");
        assert_eq!(Time::try_from(NaiveTime::from(here)), Ok(here));
    }
    let leap = NaiveTime::from_hms_nano_opt(23, 59, 59, 1_500_000_000).expect("a leap second");
    assert!(Time::try_from(leap).is_err());
}

#[cfg(feature = "time")]
#[test]
fn the_crate_time_converts() {
    use ::time::{OffsetDateTime, UtcDateTime, UtcOffset};
    for text in ["2024-02-29T12:30:00.250Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z"] {
        let here: Timestamp = text.parse().expect("a timestamp");
        let there = OffsetDateTime::try_from(here).expect("in range");
        let expected = OffsetDateTime::parse(text, &::time::format_description::well_known::Rfc3339).expect("a time");
        assert_eq!((there, Timestamp::from(there)), (expected, here));
        assert_eq!(Timestamp::from(there.to_offset(UtcOffset::from_hms(1, 30, 0).expect("an offset"))), here);
        let there = UtcDateTime::try_from(here).expect("in range");
        assert_eq!((there, Timestamp::from(there)), (expected.into(), here));
        let date: Date = text.split('T').next().expect("a date").parse().expect("a date");
        assert_eq!(::time::Date::try_from(date), Ok(expected.date()));
        assert_eq!(Date::from(expected.date()), date);
    }
    let before = OffsetDateTime::from_unix_timestamp_nanos(-1).expect("a time");
    assert_eq!(Timestamp::from(before), Timestamp::from_ms(-1), "rounded down");
    assert!(OffsetDateTime::try_from(Timestamp::from_ms(i64::MAX)).is_err());
    assert!(UtcDateTime::try_from(Timestamp::from_ms(i64::MIN)).is_err());
    assert!(::time::Date::try_from(Date::from_days(i32::MAX)).is_err());
    assert!(::time::Date::try_from(Date::from_days(i32::MIN)).is_err());
    for ns in [0, 86_399_999_999_999, 43_200_000_000_001] {
        let here = Time::from_ns(ns).expect("a time");
        assert_eq!(Time::from(::time::Time::from(here)), here);
    }
}

#[cfg(feature = "uuid")]
#[test]
fn the_crate_uuid_converts() {
    let there = ::uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    assert_eq!(Uuid::from(there).to_string(), there.to_string());
    assert_eq!(::uuid::Uuid::from(Uuid::from(there)), there);
}

#[cfg(feature = "bigdecimal")]
#[test]
fn big_numbers_convert() {
    use ::bigdecimal::BigDecimal;
    use ::num_bigint::BigInt;
    for text in ["0", "-1", "128", "-12345678901234567890123456789012345678901234567890", "99999999999999999999999999"]
    {
        let here: Varint = text.parse().expect("a number");
        let there: BigInt = text.parse().expect("a number");
        assert_eq!((BigInt::from(here.clone()), Varint::from(there)), (text.parse().expect("a number"), here));
    }
    for text in ["0", "-12.30", "0.0000001", "1.23E+50", "-5E-20"] {
        let here: Decimal = text.parse().expect("a number");
        let there: BigDecimal = text.parse().expect("a number");
        assert_eq!(BigDecimal::from(here.clone()), there);
        assert_eq!(Decimal::try_from(there), Ok(here));
    }
    assert!(Decimal::try_from(BigDecimal::new(1.into(), 1 << 40)).is_err());
}
