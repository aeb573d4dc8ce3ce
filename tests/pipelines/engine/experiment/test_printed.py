"""Tables of papers as CSV files."""

from featurelab.pipelines.engine.experiment.printed import printed_table


def test_cells_are_numbers_where_they_read_as_numbers(tmp_path):
    (tmp_path / "table_1.csv").write_text('# Table 1: accuracy in percent\nmethod,k,accuracy\n"a, b",1024,36.5\nc,,-\n')
    rows = printed_table(str(tmp_path / "figure.py"), "table_1.csv")
    assert rows == [{"method": "a, b", "k": 1024, "accuracy": 36.5}, {"method": "c", "k": None, "accuracy": "-"}]
    assert isinstance(rows[0]["k"], int)
