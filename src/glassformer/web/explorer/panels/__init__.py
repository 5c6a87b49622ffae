"""Panels: functions of an example and a selection, as plain data that the templates write down."""
