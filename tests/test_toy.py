"""The toy world is the same every time: else no table made with it could be made again."""

from paravt import toy


def test_videos_are_equal_to_the_byte(tmp_path):
    written = set()
    for _ in range(20):
        toy.write_video(str(tmp_path / "clip.mp4"), "red", 60)
        written.add((tmp_path / "clip.mp4").read_bytes())
    assert len(written) == 1


def test_rows_depend_on_the_seed_alone(tmp_path):
    first, again, other = (
        [(row["truth"], row["prompt"], row["answer"]) for row in toy.make_rows(str(tmp_path), 6, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again != other
